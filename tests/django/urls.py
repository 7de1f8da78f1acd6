"""A small site: each kind of view, limited to two requests a minute."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from ratelimit_django import view_ratelimit


@view_ratelimit(rate="2/m")
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("plain")


@view_ratelimit(rate="2/m")
async def coroutine(request: HttpRequest) -> HttpResponse:
    return HttpResponse("coroutine")


@method_decorator(view_ratelimit(rate="2/m"), name="dispatch")
class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("Plain")


@method_decorator(view_ratelimit(rate="2/m"), name="dispatch")
class Coroutine(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("Coroutine")


class PlainGet(View):
    @view_ratelimit(rate="2/m")
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("PlainGet")


class CoroutineGet(View):
    @view_ratelimit(rate="2/m")
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("CoroutineGet")


@view_ratelimit("WRITE_HEAVY")
async def category(request: HttpRequest) -> HttpResponse:
    return HttpResponse("category")


@view_ratelimit(rate="50/m")
async def wide(request: HttpRequest) -> HttpResponse:
    return HttpResponse("wide")


@view_ratelimit(key="ip", rate="9/m")
def public(request: HttpRequest) -> HttpResponse:
    return HttpResponse("public")


@view_ratelimit(rate="1/m", block=False)
async def told(request: Any) -> HttpResponse:
    return HttpResponse(f"limited: {request.limited}")


urlpatterns = [
    path("plain", plain),
    path("coroutine", coroutine),
    path("Plain", Plain.as_view()),
    path("Coroutine", Coroutine.as_view()),
    path("PlainGet", PlainGet.as_view()),
    path("CoroutineGet", CoroutineGet.as_view()),
    path("category", category),
    path("wide", wide),
    path("public", public),
    path("told", told),
]
