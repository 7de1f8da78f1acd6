"""Which rules of a policy mean a call: found out first, so that those can be prepared as if there were no others.

A policy whose rules match calls stands for several without a match, one for each set of rules that may be meant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ratelimit.plan import Call, RuleLike, attributes_of
from ratelimit.rules import Policy, Rule

_MAX_KEPT: Final = 64


class Matching:
    """A rule or policy in which at least one rule has a match. `rule` names it, or is it."""

    __slots__ = ("_kept", "_rules", "rule")

    def __init__(self, rule: RuleLike, rules: tuple[Rule, ...]) -> None:
        self.rule = rule  # kept, for it is known by its place in memory
        self._rules = rules
        self._kept: dict[tuple[bool, ...], Rule | Policy | None] = {}

    def meant(self, call: Call, protocol: str) -> Rule | Policy | None:
        """The rules that mean the call, without their match; None when none does, or one lets the call through."""
        attributes = attributes_of(call, protocol)
        which = tuple([rule.matches(attributes) for rule in self._rules])
        kept = self._kept
        if which not in kept:
            if len(kept) >= _MAX_KEPT:
                kept = self._kept = {}
            kept[which] = self._narrowed(which)
        return kept[which]

    def _narrowed(self, which: tuple[bool, ...]) -> Rule | Policy | None:
        rules = [rule for rule, is_meant in zip(self._rules, which, strict=True) if is_meant]
        if not rules or any(rule.action == "skip" for rule in rules):
            return None
        return Policy(*(replace(rule, match={}) for rule in rules))


def matching(rule: RuleLike, found: object) -> Matching | None:
    """`found`, which `rule` is or names, if which of its rules are meant depends on the call."""
    rules = found.rules if isinstance(found, Policy) else (found,) if isinstance(found, Rule) else ()
    return Matching(rule, rules) if any(one.match for one in rules) else None
