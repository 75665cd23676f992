"""When a routine reading of the flight recorder is due: on the same wall-clock moments in every rank, within the budget."""

import itertools
import random
import types

import pytest

from ranktop.collectors.recorder import beat, wiring


class World:
    """Counters that move at every beat."""

    def __init__(self):
        self.seqs = [1]

    def changed(self):
        return False

    def poll(self):
        self.seqs[0] += 1
        return True

    def safe(self, now):
        return True

    def beats_a_round(self):
        return 1


class Clocks:
    """All that a `Beats` asks the time of; a reading costs ``cost`` seconds of the thread."""

    def __init__(self, wall, cost):
        self.wall, self.mono, self.thread, self.cost = wall, 100.0, 0.0, cost

    def time(self):
        return self.wall

    def monotonic(self):
        return self.mono

    def thread_time(self):
        return self.thread

    def sleep(self, seconds):
        self.wall += seconds
        self.mono += seconds


@pytest.fixture
def rank(monkeypatch, tmp_path):
    def make(clocks):
        monkeypatch.setattr(wiring.Shared, "groups", World())
        monkeypatch.setattr(beat, "time", clocks)

        def read():
            clocks.thread += clocks.cost
            return b""

        monkeypatch.setattr(beat.flight, "reader", lambda: read)
        owner = types.SimpleNamespace(
            base=str(tmp_path / "1"), info={"rank": 0}, stale=False, main=0, info_counter=1,
            refresh=lambda now: None, note=lambda error: None,
        )  # fmt: skip
        beats, found = beat.Beats(owner), []
        reading = beats.flight

        def noted(why, now):
            found.append((why, clocks.wall))
            return reading(why, now)

        beats.flight = noted
        return beats, found

    return make


@pytest.mark.parametrize("cost", [0.0, 0.0005, 0.002, 0.007, 0.03])
def test_readings_fall_on_multiples_within_the_budget(rank, cost):
    dice = random.Random(cost)
    clocks = Clocks(1_800_000_003.7 + dice.random(), cost)
    beats, found = rank(clocks)
    end = clocks.wall + 3600
    while clocks.wall < end:
        beats.once()
        clocks.sleep(0.5 + dice.random() * 0.01)
    times = [at for why, at in found if why == "routine"]
    period = beat.PERIOD_S
    while period < cost / beat.BUDGET:
        period *= 2
    assert all(at % period < 0.6 for at in times[1:]), "the first beat after a multiple"
    gaps = [b - a for a, b in itertools.pairwise(times[1:])]
    assert all(abs(gap - period) < 1.1 for gap in gaps)
    assert cost * (len(times) - 2) <= beat.BUDGET * 3600 * 1.01
    assert len(times) > 3600 / period - 2


def test_a_clock_that_is_set_neither_ends_nor_multiplies_the_readings(rank):
    clocks = Clocks(1_800_000_000.0, 0.002)
    beats, found = rank(clocks)
    for n in range(2400):
        beats.once()
        clocks.sleep(0.5)
        if n % 400 == 399:
            clocks.wall += 7200.0 if n % 800 == 399 else -7200.0
    assert 1200 / 32 - 2 <= len(found) <= 1200 / 32 + 8


def test_a_reading_in_a_standstill_counts_for_the_budget(rank):
    clocks = Clocks(1_800_000_000.0, 0.002)
    beats, found = rank(clocks)
    for _ in range(2400):
        beats.once()
        clocks.sleep(0.5)
        if clocks.wall % 32 > 31:
            beats.flight("still", clocks.mono)
    routine = [at for why, at in found if why == "routine"]
    assert all(at % 32 < 0.6 for at in routine[1:])
    assert len(routine) <= 1200 / 64 + 3, "not again right after one"
