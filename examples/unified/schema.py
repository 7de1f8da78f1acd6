"""GraphQL: a query that spends the budget of AI_QUERY, and a mutation with a budget of its own."""

from typing import Any

import graphene
from assistant import answer

from ratelimit import RateLimits
from ratelimit_graphql import graphql_ratelimit


class Query(graphene.ObjectType):
    ask = graphene.String(question=graphene.String(required=True))

    @staticmethod
    @graphql_ratelimit(RateLimits.AI_QUERY)
    def resolve_ask(root: Any, info: Any, question: str) -> str:
        return answer(question)


class RenameDocument(graphene.Mutation):
    class Arguments:
        name = graphene.String(required=True)

    name = graphene.String()

    @staticmethod
    @graphql_ratelimit(rate=RateLimits.WRITE_MEDIUM)
    def mutate(root: Any, info: Any, name: str) -> "RenameDocument":
        return RenameDocument(name=name)


class Mutation(graphene.ObjectType):
    rename_document = RenameDocument.Field()


schema = graphene.Schema(query=Query, mutation=Mutation)
