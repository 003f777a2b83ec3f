"""From timestamps to samples: the arithmetic of one-way, two-way, echo and residence.

Notation: R(t) is what the server's clock reads at an instant, L(t) what the client's free-running
timeline reads; offset = R - L. Stamps of the client are in L, stamps of the server in R. That the
two clocks drift apart during an exchange (by at most 100 ns in a millisecond at 100 ppm) is not in
these formulas: the sample states its duration, and the estimator widens its interval by the drift.

Late receive stamps and early transmit stamps (a program's instead of the kernel's) only widen the
one-way and two-way intervals; they never make them wrong.
"""

from __future__ import annotations

from dataclasses import replace

from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind, Origin, Reading, Reason, Sample
from mqtick.mqtt.stamps import StampSource

_SLEWED_SHARE = 8
"""The kernel slews by 1/10 at most (adjtimex(2), ADJ_TICK): 1/9 of the slewed clock's time."""


def one_way(
    origin: Origin,
    transmit: Reading,
    arrival: Reading,
    settings: EstimatorSettings,
    *,
    waited_ns: int = 0,
    correction_ns: int | None = None,
    in_broker: Reading | None = None,
) -> Sample:
    """Return the sample of a broadcast.

    `transmit`: the transmit time that it states, in R. `correction_ns`: real minus stated transmit
    time, from the next broadcast; None: not known. `arrival`: in L, converted `waited_ns` later.
    `in_broker`: its time in the broker, as the broker states it; None: not stated.


    Sent at T in R, the message arrives delay later, at R = T + delay. So offset = T + delay -
    arrival. As no delay is negative, offset >= T - arrival; nothing bounds it above.
    """
    sent_ns = transmit.instant_ns + _correction(correction_ns, settings)
    lower_ns = sent_ns - arrival.instant_ns
    sample = Sample(
        Kind.ONE_WAY,
        arrival.instant_ns,
        lower_ns,
        lower_ns,
        None,
        readings=(("transmit", Reading(sent_ns, transmit.source)), ("arrival", arrival)),
        stamp_error_ns=abs(waited_ns) // _SLEWED_SHARE,
        **origin.stated(),
    )
    if in_broker is None:
        return sample
    certain_ns = _certain(in_broker, settings) if settings.trust_broker_residence else 0
    return replace(
        sample,
        offset_ns=lower_ns + in_broker.instant_ns,
        lower_ns=lower_ns + certain_ns,
        readings=(*sample.readings, ("in_broker", in_broker)),
        took_residence=True,
    )


def two_way(
    origin: Origin,
    t1: Reading,
    t2: Reading,
    t3: Reading,
    t4: Reading,
    settings: EstimatorSettings,
    *,
    correction_ns: int | None = None,
) -> Sample:
    """Return the sample of a request and its reply; refused if it is impossible.

    t1: the client transmits (L); t2: the server receives (R); t3: the server transmits (R), as
    stated; `correction_ns`: real minus stated t3, if known; t4: the client receives (L).

    With the delays a to the server and b back, neither negative: t2 = t1 + offset + a and
    t3 = t4 + offset - b. So t3 - t4 <= offset <= t2 - t1: that is certain. Their mean
    ((t2 - t1) + (t3 - t4)) / 2 = offset + (a - b) / 2 is the offset if the two delays are equal,
    else wrong by half their difference; delay = a + b = (t4 - t1) - (t3 - t2) is the width of
    the interval. The sample belongs to the middle of t1 and t4.
    """
    t3 = Reading(t3.instant_ns + _correction(correction_ns, settings), t3.source)
    upper_ns = t2.instant_ns - t1.instant_ns
    lower_ns = t3.instant_ns - t4.instant_ns
    delay_ns = upper_ns - lower_ns
    sample = Sample(
        Kind.TWO_WAY,
        (t1.instant_ns + t4.instant_ns) // 2,
        (lower_ns + upper_ns) // 2,
        lower_ns,
        upper_ns,
        delay_ns,
        t4.instant_ns - t1.instant_ns,
        (("t1", t1), ("t2", t2), ("t3", t3), ("t4", t4)),
        **origin.stated(),
    )
    if t4.instant_ns < t1.instant_ns or t3.instant_ns < t2.instant_ns:
        return sample.refused(Reason.INVERTED)
    if delay_ns < 0:
        return sample.refused(Reason.NEGATIVE_DELAY)
    return sample


def without_broker(
    exchange: Sample, request: Reading, reply: Reading, settings: EstimatorSettings
) -> Sample:
    """Return the sample of an exchange without the time in the broker; refused if impossible.

    `request`, `reply`: how long each was in the broker, as the broker states.

    The rest of each delay is that of the links, and not negative either. So without these durations
    the same formulas hold, and the interval is as wide as the links' delays. A client can check the
    durations only by their sum, which must not exceed the delay.
    """
    assert exchange.lower_ns is not None
    assert exchange.upper_ns is not None
    delay_ns = exchange.delay_ns - request.instant_ns - reply.instant_ns
    twice_ns = exchange.lower_ns + reply.instant_ns + exchange.upper_ns - request.instant_ns
    sample = replace(
        exchange,
        kind=Kind.RESIDENCE,
        offset_ns=twice_ns // 2,
        lower_ns=exchange.lower_ns + _certain(reply, settings),
        upper_ns=exchange.upper_ns - _certain(request, settings),
        delay_ns=delay_ns,
        readings=(
            *exchange.readings,
            ("request_in_broker", request),
            ("reply_in_broker", reply),
        ),
    )
    return sample.refused(Reason.RESIDENCE) if delay_ns < 0 else sample


def link_difference(
    loop_client_ns: int, loop_server_ns: int, loop_spread_ns: int, settings: EstimatorSettings
) -> tuple[int, int, int]:
    """Return how much longer the client's link down is than the server's: (guess, least, most).

    A node's loop is link up + broker + link down, so the loops differ by x = loop_client -
    loop_server = extra link up + extra link down of the client. If links are symmetric, the
    client's link down is d = x / 2 longer. However x is split between up and down, the extra link
    down lies in 0..x: d +- a, with a = asymmetry_share * |x| / 2 + link_asymmetry.

    Loops of similar links differ by chance, because the broker's wake-up takes tens of microseconds
    and varies. `loop_spread_ns` is how much the loops of one node vary. If x is smaller than that,
    it is not taken for a difference of the links; from twice the spread on, all of d is, and then
    the chance in x widens a. With `use_link_difference` off the guess is 0.
    """
    half_ns = (loop_client_ns - loop_server_ns) / 2
    floor_ns = settings.link_asymmetry_us * 1e3
    chance_ns = max(loop_spread_ns, 2 * floor_ns, 1)
    credible = min(1.0, max(0.0, abs(2 * half_ns) / chance_ns - 1))
    reach_ns = settings.asymmetry_share * abs(half_ns) + floor_ns + credible * loop_spread_ns
    guess_ns = credible * half_ns if settings.use_link_difference else 0.0
    return round(guess_ns), round(half_ns - reach_ns), round(half_ns + reach_ns)


def echo(
    origin: Origin,
    first_echo: Reading,
    last_echo: Reading,
    arrival: Reading,
    settings: EstimatorSettings,
    *,
    loop_client_ns: int | None = None,
    loop_server_ns: int | None = None,
    loop_spread_ns: int = 0,
    exchange: Sample | None = None,
) -> Sample:
    """Return the sample of a reply that the server received twice itself; refused if impossible.

    The broker delivers the reply to the server's first echo (arrives at `first_echo` in R), to the
    client (`arrival` in L), to the server's last echo (`last_echo` in R), in this order. The loops
    are the usual shortest times from a node's own transmission through the broker to its own
    arrival, each on one clock. `exchange` is the two-way sample of the same reply.

    On the server's link the client would have received at arrival - d, where d is how much longer
    its link down is (see `link_difference`). That is about the middle m of the echoes, so offset =
    m + d - arrival; and certainly between them: first + d <= arrival + offset <= last + d. If one
    of the loops is not known, the echoes guarantee nothing. In any case the interval of the two-way
    exchange holds, too. If the two exclude each other, the broker did not deliver in this order,
    and the echo is refused.
    """
    span_ns = last_echo.instant_ns - first_echo.instant_ns
    middle_ns = (first_echo.instant_ns + last_echo.instant_ns) // 2
    lower_ns: int | None = None
    upper_ns: int | None = None
    difference_ns = 0
    if loop_client_ns is not None and loop_server_ns is not None:
        difference_ns, least_ns, most_ns = link_difference(
            loop_client_ns, loop_server_ns, loop_spread_ns, settings
        )
        lower_ns = first_echo.instant_ns + least_ns - arrival.instant_ns
        upper_ns = last_echo.instant_ns + most_ns - arrival.instant_ns
    offset_ns = middle_ns + difference_ns - arrival.instant_ns
    if exchange is not None and exchange.lower_ns is not None and exchange.upper_ns is not None:
        lower_ns = exchange.lower_ns if lower_ns is None else max(lower_ns, exchange.lower_ns)
        upper_ns = exchange.upper_ns if upper_ns is None else min(upper_ns, exchange.upper_ns)
    in_order = lower_ns is None or upper_ns is None or lower_ns <= upper_ns
    if in_order and lower_ns is not None and upper_ns is not None:
        offset_ns = min(max(offset_ns, lower_ns), upper_ns)
    sample = Sample(
        Kind.ECHO,
        arrival.instant_ns,
        offset_ns,
        lower_ns,
        upper_ns,
        span_ns,
        exchange.duration_ns if exchange is not None else 0,
        (("first_echo", first_echo), ("arrival", arrival), ("last_echo", last_echo)),
        **origin.stated(),
    )
    if span_ns < 0 or not in_order:
        return sample.refused(Reason.ECHO_ORDER)
    if settings.echo_needs_kernel_stamps and any(
        reading.source is StampSource.USER for reading in (first_echo, last_echo, arrival)
    ):
        return sample.refused(Reason.USER_STAMP)
    return sample


def _certain(in_broker: Reading, settings: EstimatorSettings) -> int:
    """The least true duration, in ns: the broker's clock may have any allowed frequency error."""
    return int(in_broker.instant_ns * (1 - settings.frequency_limit_ppm * 1e-6))


def _correction(correction_ns: int | None, settings: EstimatorSettings) -> int:
    if correction_ns is None or not settings.use_follow_up:
        return 0
    return correction_ns
