from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from ratelimit_django import view_ratelimit
from tests.django.calls import acodes, by, codes, get

pytestmark = pytest.mark.usefixtures("cache_limiter")


class TestClasses:
    def test_a_method_decorated_directly(self) -> None:
        class Listing(View):
            @view_ratelimit(rate="1/m")
            def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse(type(self).__name__)

            def post(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse()

        view = Listing.as_view()
        assert view(get()).content == b"Listing"
        assert codes(view, 2) == [429, 429]
        assert codes(view, 2, by(None, REQUEST_METHOD="POST")) == [200, 200]

    @pytest.mark.parametrize("name", ["dispatch", "get"])
    def test_a_class_decorated_through_method_decorator(self, name: str) -> None:
        @method_decorator(view_ratelimit(rate="2/m"), name=name)
        class Listing(View):
            def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse(type(self).__name__)

        assert codes(Listing.as_view(), 3) == [200, 200, 429]

    def test_a_method_decorated_through_method_decorator(self) -> None:
        class Listing(View):
            @method_decorator(view_ratelimit(rate="2/m"))
            def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse()

        assert codes(Listing.as_view(), 3) == [200, 200, 429]

    def test_the_view_that_as_view_makes(self) -> None:
        class Listing(View):
            def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse()

        assert codes(view_ratelimit(rate="2/m")(Listing.as_view()), 3) == [200, 200, 429]

    async def test_async_classes(self) -> None:
        class Plain(View):
            async def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse("ok")

            async def post(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse("ok")

        class Direct(Plain):
            @view_ratelimit(rate="1/m")
            async def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse("ok")

        class OwnDispatch(Plain):
            @view_ratelimit(rate="1/m")
            def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return super().dispatch(request, *args, **kwargs)

        by_dispatch = method_decorator(view_ratelimit(rate="1/m"), name="dispatch")(type("ByDispatch", (Plain,), {}))
        by_get = method_decorator(view_ratelimit(rate="1/m"), name="get")(type("ByGet", (Plain,), {}))
        views = [made.as_view() for made in (Direct, OwnDispatch, by_dispatch, by_get)]
        for view in [*views, view_ratelimit(rate="1/m")(Plain.as_view())]:
            assert iscoroutinefunction(view)
            assert await acodes(view, 2) == [200, 429]
        # A method that is not allowed and OPTIONS are plain methods of an async class, which give a coroutine.
        assert (await views[2](by(None, REQUEST_METHOD="PUT", REMOTE_ADDR="203.0.113.9")())).status_code == 405

    async def test_a_plain_method_of_an_async_class_stays_plain(self) -> None:
        class Listing(View):
            async def get(self, request: HttpRequest) -> HttpResponse:
                return HttpResponse(self.price(request))

            @view_ratelimit(rate="1/m", block=False)
            def price(self, request: HttpRequest) -> str:
                return f"limited: {request.limited}"  # type: ignore[attr-defined]

        view = Listing.as_view()
        assert [(await view(get())).content for _ in range(2)] == [b"limited: False", b"limited: True"]
