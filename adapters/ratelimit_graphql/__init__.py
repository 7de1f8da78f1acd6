"""Rate limits on GraphQL fields and operations: Graphene, Ariadne, Strawberry and plain graphql-core.

    @graphql_ratelimit(rate=RateLimits.WRITE_MEDIUM)
    def resolve_documents(root, info, **kwargs): ...

    limit = OperationLimit(rate="500/m", field_costs={"Mutation.login": 10})

Strawberry fields whose resolver has no `info` take `ratelimit_graphql.strawberry.RateLimitExtension`. `OperationLimit` is
put in place by `ratelimit_graphql.strawberry`, `.graphene` and `.ariadne`, which import these libraries.
"""

from ratelimit_graphql.decorator import graphql_ratelimit
from ratelimit_graphql.errors import OperationLimitExceeded, RateLimitExceeded
from ratelimit_graphql.operation import Operation, Verdict
from ratelimit_graphql.operation_limit import OperationLimit

__all__ = [
    "Operation",
    "OperationLimit",
    "OperationLimitExceeded",
    "RateLimitExceeded",
    "Verdict",
    "graphql_ratelimit",
]
