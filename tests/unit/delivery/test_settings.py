from penstock.delivery import GroupSettings

SETTINGS = GroupSettings()


def test_backoff_doubles_with_each_attempt_up_to_its_limit() -> None:
    rests = [SETTINGS.backoff_ms(attempt, jitter=0) for attempt in range(1, 9)]

    assert rests == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_jitter_adds_up_to_a_fifth_and_never_shortens() -> None:
    assert SETTINGS.backoff_ms(1, jitter=1) == 1_200
    assert SETTINGS.backoff_ms(1_000_000, jitter=0.5) == 66_000
