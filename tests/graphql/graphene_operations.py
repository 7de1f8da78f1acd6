"""A Graphene schema with limits on whole operations, and the URLs that serve it by graphene-django's view."""

from __future__ import annotations

from typing import Any

import graphene
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from graphene_django.views import GraphQLView

from ratelimit_graphql import graphql_ratelimit
from ratelimit_graphql.graphene import OperationLimitMixin
from tests.graphql.operations import LOUD, QUIET, ran


class Login(graphene.Mutation):
    ok = graphene.Boolean()

    def mutate(root, info):
        ran.append("login")
        return Login(ok=True)


class Query(graphene.ObjectType):
    ping = graphene.String()
    scarce = graphene.String()

    def resolve_ping(root, info):
        ran.append("ping")
        return "pong"

    @graphql_ratelimit(rate="2/m")
    def resolve_scarce(root, info):
        return "here"


class Mutation(graphene.ObjectType):
    login = Login.Field()


SCHEMA = graphene.Schema(query=Query, mutation=Mutation)


class View(OperationLimitMixin, GraphQLView):
    operation_limit = QUIET


def view(cls: Any = View, **options: Any) -> Any:
    return csrf_exempt(cls.as_view(schema=SCHEMA, **options))


urlpatterns = [
    path("graphql", view()),
    path("loud", view(operation_limit=LOUD)),
    path("batch", view(batch=True)),
    path("loud-batch", view(operation_limit=LOUD, batch=True)),
    path("graphiql", view(graphiql=True)),
]
