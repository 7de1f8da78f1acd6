"""Rate limits on GraphQL fields: Graphene, Ariadne, Strawberry and plain graphql-core.

    @graphql_ratelimit(rate=RateLimits.WRITE_MEDIUM)
    def resolve_documents(root, info, **kwargs): ...

Strawberry fields whose resolver has no `info` take `ratelimit_graphql.strawberry.RateLimitExtension`.
"""

from ratelimit_graphql.decorator import graphql_ratelimit
from ratelimit_graphql.errors import RateLimitExceeded

__all__ = ["RateLimitExceeded", "graphql_ratelimit"]
