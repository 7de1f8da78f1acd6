"""A Graphene schema with two mutations, and the URLs that serve it by graphene-django's view."""

from __future__ import annotations

from typing import Any

import graphene
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from graphene_django.views import GraphQLView

from ratelimit import RateLimits
from ratelimit_graphql import graphql_ratelimit


class Rename(graphene.Mutation):
    class Arguments:
        name = graphene.String(required=True)

    name = graphene.String()

    @graphql_ratelimit(rate="2/m")
    def mutate(root, info, name):
        return Rename(name=name)


class Remove(graphene.Mutation):
    ok = graphene.Boolean()

    @classmethod
    @graphql_ratelimit(rate="3/m")
    def mutate(cls, root: Any, info: Any) -> Remove:
        return cls(ok=True)


class Import(graphene.relay.ClientIDMutation):
    class Input:
        name = graphene.String(required=True)

    name = graphene.String()

    @classmethod
    @graphql_ratelimit(rate="1/m", key=lambda root, info, name, **_: name)
    def mutate_and_get_payload(cls, root: Any, info: Any, name: str, **_: Any) -> Import:
        return cls(name=name)


class Query(graphene.ObjectType):
    documents = graphene.List(graphene.String)
    answer = graphene.String()
    limited = graphene.Boolean()

    @graphql_ratelimit(rate=RateLimits.WRITE_HEAVY)
    def resolve_documents(root, info):
        return ["a", "b"]

    @staticmethod
    @graphql_ratelimit(RateLimits.AI_ANALYSIS)
    def resolve_answer(root: Any, info: Any) -> str:
        return "because"

    @graphql_ratelimit(rate="1/m", block=False)
    def resolve_limited(root, info):
        return info.context.limited


class Mutation(graphene.ObjectType):
    rename = Rename.Field()
    remove = Remove.Field()
    bring = Import.Field()


SCHEMA = graphene.Schema(query=Query, mutation=Mutation)

urlpatterns = [
    path("graphql", csrf_exempt(GraphQLView.as_view(schema=SCHEMA))),
    path("batch", csrf_exempt(GraphQLView.as_view(schema=SCHEMA, batch=True))),
]
