"""What readers found damaged is looked at, and not for ever."""

from penstock.cluster.suspicion import Suspicion


def looks_at(suspicion: Suspicion) -> list[int]:
    looks = []
    while suspicion:
        looks.append(suspicion.take_look())
    return looks


def test_one_batch_is_looked_at_until_it_is_mended() -> None:
    suspicion = Suspicion()
    suspicion.arise(7)
    suspicion.arise(9)

    assert suspicion.take_look() == 7
    assert suspicion
    suspicion.end()
    assert not suspicion


def test_a_batch_that_cannot_be_mended_is_looked_at_for_a_while() -> None:
    suspicion = Suspicion()
    suspicion.arise(7)

    assert set(looks_at(suspicion)) == {7}


def test_a_batch_that_was_given_up_is_not_looked_at_again() -> None:
    suspicion = Suspicion()
    suspicion.arise(7)
    suspicion.give_up(range(5, 10))

    suspicion.arise(9)
    assert not suspicion
    suspicion.arise(10)
    assert suspicion.take_look() == 10
