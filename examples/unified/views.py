"""Plain HTTP: Django views, and the paths of everything that Django serves."""

from assistant import answer
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST
from graphene_django.views import GraphQLView
from login import make_token
from schema import schema

from ratelimit import RateLimits
from ratelimit_django import view_ratelimit


@require_POST
@view_ratelimit(RateLimits.AUTH_LOGIN, key="ip")
def log_in(request: HttpRequest) -> JsonResponse:
    """A token for the right password. By address: whoever guesses has no user to be counted by."""
    token = make_token(request.POST.get("name", ""), request.POST.get("password", ""))
    if token is None:
        return JsonResponse({"error": "wrong name or password"}, status=403)
    return JsonResponse({"token": token})


@require_GET
@view_ratelimit(RateLimits.READ_HEAVY)
def report(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"rows": list(range(100))})


@require_GET
@view_ratelimit(RateLimits.AI_QUERY)
async def ask(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"answer": answer(request.GET.get("question", ""))})


urlpatterns = [
    path("login", log_in),
    path("report", report),
    path("ask", ask),
    path("graphql", GraphQLView.as_view(schema=schema)),
]
