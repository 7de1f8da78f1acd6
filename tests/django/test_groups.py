"""Which views share a budget: none that did not ask for it."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch
from django.utils.decorators import method_decorator
from django.views import View
from django.views.generic import TemplateView

from ratelimit_django import view_ratelimit
from tests.django.calls import codes, get, ok

pytestmark = pytest.mark.usefixtures("cache_limiter")
HERE = __name__


def groups() -> list[str]:
    """The groups that were counted so far, as they stand in the keys."""
    keys = caches["default"]._cache  # type: ignore[attr-defined]
    return sorted(key.removeprefix(":1:rl:").partition(":{")[0] for key in keys)


@view_ratelimit(rate="2/m")
def index(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


class Answering(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(type(self).__name__)

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(type(self).__name__)


@method_decorator(view_ratelimit(rate="2/m"), name="dispatch")
class Books(Answering): ...


@method_decorator(view_ratelimit(rate="3/m"), name="dispatch")
class Authors(Answering): ...


class A:
    @view_ratelimit(rate="2/m")
    def list(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("a")


class B:
    @view_ratelimit(rate="3/m")
    def list(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("b")


class Base(View):
    @view_ratelimit(rate="2/m")
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("base")


class Inheriting(Base): ...


class AlsoInheriting(Base): ...


class Extending(Base):
    @view_ratelimit(rate="3/m")
    def get(self, request: HttpRequest) -> HttpResponse:
        return super().get(request)


def test_a_function_counts_under_its_module_and_name() -> None:
    assert codes(index, 3) == [200, 200, 429]
    assert groups() == [f"{HERE}.index"]


def test_two_classes_decorated_on_dispatch_count_under_their_own_names() -> None:
    assert codes(Books.as_view(), 3) == [200, 200, 429]
    assert codes(Authors.as_view(), 4) == [200, 200, 200, 429]
    assert groups() == [f"{HERE}.Authors", f"{HERE}.Books"]


def test_two_methods_of_one_name_count_apart() -> None:
    assert codes(A().list, 3) == [200, 200, 429]
    assert codes(B().list, 4) == [200, 200, 200, 429]
    assert groups() == [f"{HERE}.A.list", f"{HERE}.B.list"]


def test_an_inherited_method_counts_for_each_class() -> None:
    assert codes(Inheriting.as_view(), 3) == [200, 200, 429]
    assert codes(AlsoInheriting.as_view(), 3) == [200, 200, 429]
    assert groups() == [f"{HERE}.AlsoInheriting.get", f"{HERE}.Inheriting.get"]


def test_a_method_and_the_one_it_calls_by_super_are_two_limits() -> None:
    assert codes(Extending.as_view(), 3) == [200, 200, 429]
    assert [group.partition("~")[0][:40] for group in groups()] == [
        f"{HERE}.Extending.get",
        f"{HERE}.Extending.get@{HERE}.Base.get"[:40],
    ]


def test_the_methods_of_a_class_count_apart() -> None:
    limit = view_ratelimit(rate="1/m")

    @method_decorator(limit, name="get")
    @method_decorator(limit, name="post")
    class Both(Answering): ...

    view = Both.as_view()
    assert codes(view, 2) == [200, 429]
    assert view(post()).status_code == 200


def post() -> HttpRequest:
    return get(REQUEST_METHOD="POST")


def test_a_class_of_djangos_own_generic_views_counts_under_its_own_name() -> None:
    @method_decorator(view_ratelimit(rate="1/m"), name="get")
    class Page(TemplateView):
        def render_to_response(self, context: Any, **kwargs: Any) -> HttpResponse:  # type: ignore[override]
            return HttpResponse("page")

    Page.__qualname__ = "Page"
    assert codes(Page.as_view(), 2) == [200, 429]
    assert groups() == [f"{HERE}.Page.get"]


def test_stacked_limits_are_several_budgets() -> None:
    # An anonymous caller is an address for both: each request must cost it one unit of each budget, not two of one.
    view = view_ratelimit(key="user", rate="2/m")(view_ratelimit(key="ip", rate="9/m")(ok))
    assert codes(view, 3) == [200, 200, 429]
    assert groups() == ["tests.django.calls.ok", "tests.django.calls.ok#2"]


@pytest.mark.parametrize(
    "decorate",
    [
        lambda *limits: functools.reduce(
            lambda view, limit: method_decorator(limit, name="dispatch")(view), limits, new_class()
        ),
        lambda *limits: method_decorator(limits[::-1], name="dispatch")(new_class()),
        lambda one, *rest: method_decorator(rest[::-1], name="dispatch")(
            method_decorator(one, name="dispatch")(new_class())
        ),
        lambda *limits: method_decorator(limits[-1], name="dispatch")(
            method_decorator(limits[-2::-1], name="dispatch")(new_class())
        ),
    ],
)
def test_stacked_limits_on_a_class_are_several_budgets(decorate: Callable[..., type[View]]) -> None:
    limits = [view_ratelimit(rate=rate) for rate in ("7/m", "8/m", "3/m")]
    view = decorate(*limits)
    assert codes(view.as_view(), 4) == [200, 200, 200, 429]
    assert groups() == [f"{HERE}.Stacked", f"{HERE}.Stacked#2", f"{HERE}.Stacked#3"]


def new_class() -> type[View]:
    return type("Stacked", (Answering,), {"__module__": HERE})


def test_a_limit_around_as_view_bears_the_classs_name_beside_that_of_its_dispatch() -> None:
    view = view_ratelimit(rate="1/m")(Books.as_view())
    assert codes(view, 2) == [200, 429]
    assert groups() == [f"{HERE}.Books", f"{HERE}.Books#2"]


def make(rate: str) -> Callable[..., HttpResponse]:
    @view_ratelimit(rate=rate)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")

    return view


class Site:
    def index(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")


@pytest.mark.parametrize(
    "views",
    [
        lambda: [make("2/m"), make("3/m")],
        lambda: [
            view_ratelimit(rate="2/m")(lambda request: ok(request)),
            view_ratelimit(rate="3/m")(lambda request: ok(request)),
        ],
        lambda: [view_ratelimit(rate=rate)(functools.partial(ok)) for rate in ("2/m", "3/m")],
        lambda: [view_ratelimit(rate=rate)(ok) for rate in ("2/m", "3/m")],
        lambda: [view_ratelimit(rate=rate)(Site().index) for rate in ("2/m", "3/m")],
        lambda: [view_ratelimit(rate=rate)(Answering.as_view()) for rate in ("2/m", "3/m")],
        lambda: [view_ratelimit(rate="2/m")(ok), view_ratelimit(rate="3/m")(functools.partial(ok))],
    ],
)
def test_functions_of_one_name_count_apart(views: Callable[[], list[Callable[..., HttpResponse]]]) -> None:
    one, other = views()
    assert codes(one, 3) == [200, 200, 429]
    assert codes(other, 4) == [200, 200, 200, 429]


def test_callable_objects_of_one_class_count_apart() -> None:
    class Handler:
        def __call__(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("ok")

    one, other = (view_ratelimit(rate=rate)(Handler()) for rate in ("2/m", "3/m"))
    assert codes(one, 3) == [200, 200, 429]
    assert codes(other, 4) == [200, 200, 200, 429]


def test_a_view_made_anew_for_every_request_is_limited_all_the_same() -> None:
    def outer(request: HttpRequest) -> HttpResponse:
        return make("2/m")(request)

    assert codes(outer, 3) == [200, 200, 429]


def test_names_are_free_again_when_their_views_are_gone() -> None:
    views = [make("2/m") for _ in range(3)]
    assert [codes(view, 1) for view in views] == [[200]] * 3
    name = f"{HERE}.make.<locals>.view"
    assert groups() == [name, f"{name}+2", f"{name}+3"]
    del views
    gc.collect()
    view = make("9/m")
    assert codes(view, 1) == [200]
    assert len(groups()) == 3


def made_class(rate: str) -> type[View]:
    @method_decorator(view_ratelimit(rate=rate), name="dispatch")
    class Listing(Answering): ...

    return Listing


def test_classes_made_by_one_function_count_apart() -> None:
    one, other = made_class("2/m"), made_class("3/m")
    assert codes(one.as_view(), 3) == [200, 200, 429]
    assert codes(other.as_view(), 4) == [200, 200, 200, 429]


def test_classes_made_by_one_function_are_told_apart_by_their_routes_in_every_process_alike() -> None:
    one, other = made_class("2/m"), made_class("3/m")

    def routed(route: str) -> Callable[[], HttpRequest]:
        def request() -> HttpRequest:
            made = get()
            made.resolver_match = ResolverMatch(ok, (), {}, route=route)
            return made

        return request

    assert codes(other.as_view(), 4, routed("b/")) == [200, 200, 200, 429]
    assert codes(one.as_view(), 3, routed("a/")) == [200, 200, 429]
    assert [group[-5:] for group in groups()] == ["ng+a/", "ng+b/"]


def test_a_class_method_counts_under_its_class() -> None:
    class Api:
        @classmethod
        @view_ratelimit(rate="1/m")
        def view(cls, request: HttpRequest) -> HttpResponse:
            return HttpResponse("ok")

        @staticmethod
        @view_ratelimit(rate="1/m")
        def plain(request: HttpRequest) -> HttpResponse:
            return HttpResponse("ok")

    Api.__qualname__ = "Api"
    assert codes(Api.view, 2) == [200, 429]
    assert codes(Api.plain, 2) == [200, 429]
    assert groups()[0] == f"{HERE}.Api.view"


def test_a_group_that_is_given_is_used_as_it_stands() -> None:
    seen = []

    def rate(group: str, request: HttpRequest) -> str:
        seen.append(group)
        return "1/m"

    codes(view_ratelimit(rate=rate, group="own")(ok), 1)
    codes(view_ratelimit(rate=rate)(ok), 1)
    assert groups() == ["own", "tests.django.calls.ok"]
    assert seen == ["own", "tests.django.calls.ok"]
