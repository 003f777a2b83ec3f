"""Every constant of the estimator, each with a sentence and a unit."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.service.settings.load import key


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """How offsets are measured, selected, averaged and bounded."""

    use_follow_up: bool = key(
        True, "Correct stated transmit times by what the server found out afterwards."
    )
    use_two_way: bool = key(True, "Use the two-way exchange.")
    use_echo: bool = key(True, "Use the server's private echoes of each reply.")
    trust_broker: bool = key(
        False,
        "Let echoes narrow the guaranteed interval: only if nobody but you runs the broker, as it "
        "could deliver in another order than they assume.",
    )
    use_residence: bool = key(
        True, "Take out the time that a message spent in the broker, where the broker says that."
    )
    trust_broker_residence: bool = key(
        False,
        "Let that narrow the guaranteed interval to the links: only if nobody but you runs every "
        "broker on the way, as it could state what it likes.",
    )
    use_link_difference: bool = key(
        True, "Correct an echo by half the difference of the client's and the server's round trips."
    )
    use_lucky: bool = key(
        True,
        "Make one point of a burst: the least delayed sample; of echoes, the weighted mean.",
    )
    use_frequency: bool = key(True, "Estimate the frequency of the local clock.")

    refuse_unsynchronised_server: bool = key(
        True, "Refuse the time of a server that says it is not synchronised itself."
    )
    stamp_error_us: float = key(
        1.0,
        "What converting timestamps may add on either side of each guaranteed interval.",
        minimum=0,
        maximum=1e6,
    )
    link_asymmetry_us: float = key(
        5.0,
        "How much the two directions of a link may differ beyond what the round trips show.",
        minimum=0,
        maximum=1e6,
    )
    asymmetry_share: float = key(
        1.0,
        "How much of the extra round trip may lie in one direction; 1 covers any split.",
        minimum=0,
        maximum=1,
    )
    echo_needs_kernel_stamps: bool = key(
        True, "Refuse an echo if a program read one of its arrivals: late reading breaks the order."
    )
    maximum_delay_us: float = key(
        1_000_000.0, "Refuse a sample with more delay than this.", minimum=1, maximum=6e7
    )
    assumed_path_delay_us: float = key(
        10_000.0,
        "Greatest delay of a broadcast beyond the round trip to the broker, assumed only until an "
        "exchange has given an upper limit.",
        minimum=1,
        maximum=6e7,
    )

    echo_sigma_share: float = key(
        0.35, "Standard deviation of an echo, as a share of half its bracket.", minimum=0.01
    )
    echo_sigma_us: float = key(
        1.0, "Least standard deviation of an echo.", minimum=0.001, maximum=1e6
    )
    two_way_sigma_share: float = key(
        0.25,
        "Standard deviation of a two-way offset, as a share of the delay above the least.",
        minimum=0,
    )
    two_way_sigma_us: float = key(
        20.0, "Least standard deviation of a two-way offset.", minimum=0.001, maximum=1e6
    )
    residence_sigma_us: float = key(
        2.0,
        "Least standard deviation of an exchange or a broadcast without the time in the broker.",
        minimum=0.001,
        maximum=1e6,
    )
    one_way_sigma_us: float = key(
        200.0,
        "Standard deviation of a broadcast's offset before its spread was learned.",
        minimum=0.001,
        maximum=1e6,
    )

    lucky_window_s: float = key(
        2.0, "Exchanges that begin within this time are one burst.", minimum=0, maximum=3600
    )
    lucky_broadcasts_s: float = key(
        8.0, "Of the broadcasts within this time, the least delayed counts.", minimum=0
    )
    prefer_better_s: float = key(
        45.0, "How long a better kind of sample keeps the lesser kinds from use.", minimum=0
    )
    window_samples: int = key(
        128, "How many samples the regression looks back on.", minimum=2, maximum=4096
    )
    bracket_samples: int = key(
        64, "How many guaranteed intervals are intersected.", minimum=1, maximum=4096
    )
    tolerated_faults: int = key(
        1,
        "How many wrong intervals that agree with the others must not make the bound wrong; each "
        "widens it by about a third.",
        minimum=0,
        maximum=16,
    )
    path_samples: int = key(
        32, "How many delays a learned delay is the median of.", minimum=4, maximum=4096
    )
    learn_within_us: float = key(
        20.0, "Delays are learned only while the estimate itself is this good.", minimum=0
    )

    shortest_time_constant_s: float = key(
        32.0, "Shortest time in which the weight of a sample falls to 37 %.", minimum=1
    )
    longest_time_constant_s: float = key(
        512.0, "Longest time in which the weight of a sample falls to 37 %.", minimum=1
    )
    forgetting_samples: int = key(
        64, "Over how many predictions the time constants are compared.", minimum=2
    )
    huber_sigmas: float = key(
        1.5, "Residuals above this many standard deviations lose weight.", minimum=0.1
    )
    outlier_sigmas: float = key(
        5.0, "Residuals above this many standard deviations are left out in the end.", minimum=1
    )

    frequency_limit_ppm: float = key(
        100.0, "No local clock's frequency is wrong by more than this.", minimum=1, maximum=1000
    )
    frequency_bound_ppm: float = key(
        1.0,
        "How fast the guaranteed interval grows, in addition to the known uncertainty.",
        minimum=0,
        maximum=1000,
    )
    frequency_sigmas: float = key(
        4.0, "How many standard deviations of the frequency the interval grows by.", minimum=1
    )
    wander_bound_ppb: float = key(
        10.0,
        "Standard deviation by which the local frequency may wander in a second; grows as the "
        "square root of time.",
        minimum=0,
        maximum=10_000,
    )

    assumed_slew_ppm: float = key(
        100.0,
        "How fast a server's clock may be slewed that promises nothing, as in the published "
        "formats; chronyd there slews faster unless its maxslewrate is as low.",
        minimum=0,
        maximum=100_000,
    )

    holdover_after_s: float = key(60.0, "Without a sample for this long: holdover.", minimum=1)
    maximum_age_s: float = key(
        14_400.0, "Without a sample for this long: unsynchronised.", minimum=1
    )
    unsynchronised_bound_us: float = key(
        50_000.0,
        "Unsynchronised while half the guaranteed interval is wider than this.",
        minimum=1,
    )
    late_s: float = key(
        10.0, "Refuse samples that are older than the newest by more than this.", minimum=0
    )

    jump_policy: str = key(
        "confirm",
        "When samples contradict the interval: accept the new time once confirmed, or refuse it.",
        choices=("confirm", "refuse"),
    )
    confirm_samples: int = key(
        4, "How many exchanges in a row must agree on a new time.", minimum=2, maximum=32
    )
    confirm_s: float = key(10.0, "How long they must agree at least.", minimum=0, maximum=86_400)
