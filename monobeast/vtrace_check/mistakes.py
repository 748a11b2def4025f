"""Common mistakes in implementations of V-trace, each with a name and a function that computes its numbers.

An implementation that returns exactly a mistake's wrong numbers has made that mistake.
"""

from functools import partial
from typing import NamedTuple

from monobeast.vtrace_check import policies, wrong_terms
from monobeast.vtrace_check.terms import Outputs, follow
from monobeast.vtrace_check.ways import (
    SHIFTS,
    Ways,
    add_to_last_target,
    bootstrap_from_the_next_episode,
    bootstrapped,
    discounted_last_value,
    in_places,
    last_value,
    leak,
    of_ratios,
    shift_discounts,
    shift_in_trace,
    shifted,
    shifted_input,
    swap_but,
)
from monobeast.vtrace_check.wrong_terms import (
    Compute,
    add_to_last,
    clipped,
    everywhere,
    in_vs,
    is_before,
    is_done,
    is_reset,
    is_zero,
    only,
    with_input_where,
    with_inputs,
    with_log_probs,
    with_outputs,
    with_targets,
    with_terms,
)


class Mistake(NamedTuple):
    """A mistake, and the function that computes its outputs."""

    name: str
    how: str  # one of the ways to make it
    compute: Compute
    takes: str = ""  # what a function takes that can make it

    def __str__(self) -> str:
        return f"{self.name} ({self.how})"


_RESET, _ZERO = "a reset step", "a step of ratio 0"  # in most cases these are the same

_WAYS: dict[str, Ways] = {
    "pi and mu swapped": {
        **of_ratios("mu / pi for pi / mu", with_inputs(log_rhos=lambda case: -case.inputs["log_rhos"])),
        **of_ratios(f"mu / pi for pi / mu, but 0 in {_RESET}", swap_but(is_reset)),
        **of_ratios(f"mu / pi for pi / mu, but 0 in {_ZERO}", swap_but(is_zero)),
    },
    "no rho in delta": {"1 for it": everywhere(with_terms(rhos=lambda terms, _: 1.0))},
    "rho-bar ignored": {
        "pi / mu in delta": everywhere(clipped(rho=[None])),
        "pi / mu in delta and the advantages": everywhere(clipped(rho=[None], pg_rho=[None])),
        "clipped at 1 in delta": everywhere(clipped(rho=[1.0])),
        "clipped at 1 in delta and the advantages": everywhere(clipped(rho=[1.0], pg_rho=[1.0])),
        "clipped at 1 in the advantages": everywhere(clipped(pg_rho=[1.0])),
    },
    "rho not clipped in the advantage": {"pi / mu for it": everywhere(clipped(pg_rho=[None]))},
    "one clip for both rhos": {
        "rho-bar in the advantages": everywhere(clipped(pg_rho=["rho"])),
        "that of the advantages in delta": everywhere(clipped(rho=["pg_rho"])),
    },
    "c-bar used for rho": {
        "in delta": everywhere(clipped(rho=["c"])),
        "in the advantages": everywhere(clipped(pg_rho=["c"])),
        "in delta and the advantages": everywhere(clipped(rho=["c"], pg_rho=["c"])),
        "in delta, and rho-bar for c": everywhere(clipped(rho=["c"], c=["rho"])),
    },
    "clips left out": {
        "pi / mu for every weight": everywhere(clipped(rho=[None], pg_rho=[None], c=[None])),
        "pi / mu for rho and c in vs": everywhere(clipped(rho=[None], c=[None])),
        "every weight is clipped at 1": everywhere(clipped(rho=[1.0], pg_rho=[1.0], c=[1.0])),
    },
    "rho used for c": {
        "c is pi / mu, not clipped": everywhere(clipped(c=[None])),
        "c is pi / mu, not clipped, without lambda": everywhere(
            with_inputs(clip_c_threshold=lambda _: None, lambda_=lambda _: 1.0)
        ),
        "c is rho, clipped at rho-bar, without lambda": everywhere(with_terms(cs=lambda terms, _: terms.rhos)),
        "c is rho, clipped at rho-bar and then at c-bar": everywhere(clipped(c=["rho", "c"])),
    },
    "c-bar not separate": {
        "c is clipped at rho-bar": everywhere(clipped(c=["rho"])),
        "c is clipped at rho-bar of the advantages": everywhere(clipped(c=["pg_rho"])),
        "c is clipped at 1, whatever c-bar is": everywhere(clipped(c=[1.0])),
        "c is clipped at 1 where c-bar is above": everywhere(clipped(c=["c", 1.0])),
    },
    "every c is 1": {
        "1 for min(c-bar, pi / mu)": everywhere(with_terms(cs=lambda terms, lambda_: lambda_)),
        "1 for lambda min(c-bar, pi / mu)": everywhere(with_terms(cs=lambda terms, _: 1.0)),
    },
    "c without the discount": {"c for gamma c": everywhere(with_terms(trace_discounts=lambda terms, _: 1.0))},
    "c shifted by one": shift_in_trace("cs"),
    "lambda left out": {"c is not multiplied by it": everywhere(with_inputs(lambda_=lambda _: 1.0))},
    "lambda counted twice": {
        "its square in c": everywhere(with_inputs(lambda_=lambda case: case.params["lambda_"] ** 2))
    },
    "lambda within the clip": {"min(c-bar, lambda pi / mu)": everywhere(only("cs", wrong_terms.with_lambda_in_ratios))},
    "lambda in rho": {
        "in delta's": everywhere(with_terms(rhos=lambda terms, lambda_: lambda_ * terms.rhos)),
        "in delta's and the advantage's": everywhere(
            with_terms(
                rhos=lambda terms, lambda_: lambda_ * terms.rhos,
                pg_rhos=lambda terms, lambda_: lambda_ * terms.pg_rhos,
            )
        ),
    },
    "lambda in the discount": {
        "lambda gamma for gamma in delta and the advantages": everywhere(
            with_terms(discounts=lambda terms, lambda_: lambda_ * terms.discounts)
        )
    },
    "bootstrap value counted twice": {
        **in_places(
            "gamma V(x_T) added to the last reward",
            with_terms(rewards=lambda terms, _: add_to_last(terms.rewards, discounted_last_value(terms))),
        ),
        **in_places(
            "V(x_T) added to the last reward",
            with_terms(rewards=lambda terms, _: add_to_last(terms.rewards, last_value(terms))),
        ),
        **add_to_last_target("gamma V(x_T) added to the last target", discounted_last_value),
        **add_to_last_target("V(x_T) added to the last target", last_value),
        "the recursion of v_s - V(x_s) starts at V(x_T) for 0": partial(
            wrong_terms.bootstrap_after_the_last, in_advantage=False
        ),
        "the recursion of v_s - V(x_s) starts at V(x_T) for 0, and v_T is twice V(x_T)": partial(
            wrong_terms.bootstrap_after_the_last, in_advantage=True
        ),
    },
    "bootstrap value left out": {
        "0 for V(x_T)": everywhere(bootstrapped(lambda terms: 0 * terms.values[0])),
        "V(x_{T-1}) for V(x_T)": everywhere(bootstrapped(lambda terms: terms.values[-1])),
        "V(x_0) for V(x_T)": everywhere(bootstrapped(lambda terms: terms.values[0])),
    },
    "bootstrap value left out of delta": {
        "0 for V(x_T) there": in_vs(bootstrapped(lambda terms: 0 * terms.values[0])),
    },
    "wrong v_T in the last advantage": {
        "0 for V(x_T)": with_targets(lambda vs, *_: follow(vs, 0 * vs[0])),
        "v_{T-1} for V(x_T)": with_targets(lambda vs, *_: follow(vs, vs[-1])),
        "v_0 for V(x_T)": with_targets(lambda vs, *_: follow(vs, vs[0])),
        "V(x_{T-1}) for V(x_T)": with_targets(lambda vs, terms, _: follow(vs, terms.values[-1])),
    },
    "discount shifted by one": shift_discounts(),
    "reward shifted by one": {
        how: everywhere(shifted("rewards", by, edge)) for by, edge, how in SHIFTS if edge != 1.0
    },
    "ratio shifted by one": {
        how: everywhere(shifted_input("log_rhos", by, edge)) for by, edge, how in SHIFTS if isinstance(edge, int)
    },
    "next episode's value leaking past a cut": {
        **leak(_RESET, is_reset),
        **leak(_ZERO, is_zero),
    },
    "truncation taken for a termination": {
        **in_places("discount 0 where an episode is done", with_input_where(is_done, "discounts", 0.0)),
        **in_places(f"discount 0 before {_RESET}", with_input_where(is_before(is_reset), "discounts", 0.0)),
        **in_places(f"discount 0 before {_ZERO}", with_input_where(is_before(is_zero), "discounts", 0.0)),
    },
    "truncation bootstraps from the next episode": {
        **bootstrap_from_the_next_episode(_RESET, is_reset),
        **bootstrap_from_the_next_episode(_ZERO, is_zero),
    },
    "V(x_{s+1}) in the advantage": {"where v_{s+1} belongs": with_targets(lambda vs, terms, _: terms.next_values)},
    "lambda in the advantage": {
        "lambda v_{s+1} + (1 - lambda) V(x_{s+1}) for v_{s+1}: a departure from the paper that rlax makes": (
            with_targets(
                lambda vs, terms, lambda_: lambda_ * follow(vs, terms.next_values[-1])
                + (1 - lambda_) * terms.next_values
            )
        )
    },
    "vs - V as the advantage": {
        "without a weight": with_outputs(lambda right, terms: Outputs(right.vs, right.vs - terms.values)),
        "times its rho": with_outputs(
            lambda right, terms: Outputs(right.vs, terms.pg_rhos * (right.vs - terms.values))
        ),
    },
    "advantage without a weight": {"1 for its rho": everywhere(with_terms(pg_rhos=lambda terms, _: 1.0))},
    "vs - V returned for vs": {
        "V(x_s) not added": with_outputs(lambda right, terms: right._replace(vs=right.vs - terms.values))
    },
    "outputs swapped": {"advantages first": with_outputs(lambda right, _: Outputs(*reversed(right)))},
    "time and batch swapped": {"time is axis 1 wherever there are two": wrong_terms.swap_axes},
}
_WAYS_WITH_LOGITS: dict[str, Ways] = {
    "logits not normalized": {
        "no log_softmax": with_log_probs(policies.take),
        "log_softmax over time": with_log_probs(wrong_terms.read_normalized_along(0)),
        "log_softmax over the batch": with_log_probs(wrong_terms.read_normalized_along(1)),
    },
    "probability of another action": {
        "action 0, whatever was done": with_log_probs(wrong_terms.read_first_action),
        "time and batch of the actions swapped": with_log_probs(wrong_terms.read_turned_actions),
    },
}
MISTAKES = [
    Mistake(name, how, compute, takes)
    for takes, family in (("", _WAYS), ("target_policy_logits", _WAYS_WITH_LOGITS))
    for name, ways in family.items()
    for how, compute in ways.items()
]
