"""What is said of a cause, for one rank and for several: one table, so that a new cause is a new row."""

from __future__ import annotations

#: cause, or "cause/variant" -> what one first rank did, what several did.
_DID: dict[str, tuple[str, str]] = {
    "missing_rank": (
        "never entered the collective that the others wait in",
        "never entered the collective that the others wait in",
    ),
    "collective_mismatch": (
        "issued another operation than the others at the same place",
        "issued other operations than the rest at the same place",
    ),
    "collective_mismatch/extra": (
        "issued an operation that the others don't come to",
        "issued an operation that the others don't come to",
    ),
    "missing_rank/skipped": (
        "left out a collective that the others wait in",
        "left out a collective that the others wait in",
    ),
    "collective_order/p2p": (
        "waits for a partner that waits for it",
        "wait for each other's sends and receives",
    ),
    "collective_order": (
        "took the groups' operations in another order, so the ranks wait for each other",
        "took the groups' operations in different orders, so they wait for each other",
    ),
    "unequal_steps": (
        "finished its loop and left while the others still step",
        "finished their loop and left while the others still step",
    ),
    "unused_parameters": (
        "left parameters out of its loss, so DDP's reduction never completes",
        "left parameters out of their loss, so DDP's reduction never completes",
    ),
    "straggler": ("is always last", "are always last"),
    "rank_exited": ("was the first whose process ended", "were the first whose processes ended"),
    "out_of_memory": ("ran out of memory", "ran out of memory"),
    "rank_frozen": (
        "has a process that exists but does not run",
        "have processes that exist but do not run",
    ),
    "host_lost": ("fell silent together with its host", "fell silent together with their host"),
    "gpu_fault": (
        "has a device that does not finish what its peers have finished",
        "have devices that do not finish what their peers have finished",
    ),
    "network": (
        "does not get through to the others",
        "do not get through to the others",
    ),
    "rendezvous": ("never came to init_process_group", "never came to init_process_group"),
    "misconfigured": ("is set up in a way that cannot work", "are set up in a way that cannot work"),
}
#: cause, or "cause/variant" -> what is said where no rank is to blame.
_NOBODY: dict[str, str] = {
    "network/slow": "The operations finish, but far more slowly than before in this run; no rank is to blame.",
    "network": "Every rank entered the operation and none can finish it, so no rank is to blame.",
    "collective_mismatch": "The ranks issued different operations at one place; nothing decides who is wrong.",
    "collective_order": "Ranks wait for each other in a circle; nothing decides whose order is wrong.",
    "rendezvous": "The ranks wait to meet, and none of them is to blame for it.",
    "misconfigured": "The job is set up in a way that cannot work; no single rank is to blame.",
}
#: state of a job without a verdict -> what is said of it.
CALM: dict[str, str] = {
    "starting": "The ranks are still starting; nothing is overdue.",
    "running": "The job is running; nobody waits for too long.",
    "finished": "The job finished; every rank ended well.",
    "blind": "Nobody waits in the dumps that are there; ranks whose dump is missing may.",
    "unknown": "Nothing has been heard of this job for a minute and it left no end, so nobody knows.",
    "slow": "The job pauses as it did before, and it went on then.",
    "failed": "The job ended badly, and nothing that was seen tells why.",
    "stalled": "The job stands still, and nothing that was seen tells why.",
}
#: phase -> where in the job's life it is.
PHASES: dict[str, str] = {
    "startup": "at start-up",
    "step": "in a step",
    "evaluation": "in an evaluation",
    "checkpoint": "at a checkpoint",
    "logging": "while logging",
    "shutdown": "at shutdown",
}


def nobody_did(cause: str, variant: str) -> str:
    """What is said where no rank is to blame."""
    told = _NOBODY.get(f"{cause}/{variant}") or _NOBODY.get(cause)
    return told or "The evidence does not decide which rank is to blame."


def first_did(cause: str, variant: str, *, many: bool) -> str:
    """The predicate of "rank 3 …" or "ranks 3, 5 …"."""
    forms = (
        _DID.get(f"{cause}/{variant}") or _DID.get(cause) or ("is where every wait ends", "are where every wait ends")
    )
    return forms[many]


#: cause, or "cause/variant" -> what is said of the operation: where one rank is to blame, several, none.
_OWED: dict[str, tuple[str, str, str]] = {
    "": ("It owes the others {}.", "They owe the others {}.", "What they wait in: {}."),
    "straggler": ("One that it was last into: {}.", "One that they were last into: {}.", "One of them: {}."),
    "collective_mismatch": ("At that place the others have {}.",) * 2 + ("At that place some have {}.",),
    "collective_mismatch/extra": ("That operation is {}.",) * 3,
    "collective_order": ("What waits for it: {}.", "They wait in {}, among others.", "They wait in {}, among others."),
    "gpu_fault": ("The others wait for it in {}.", "The others wait for them in {}.", "They wait in {}."),
    "network": ("The operation is {}.",) * 3,
}


def owed(cause: str, variant: str, operation: str, blamed: int) -> str:
    """A sentence on the operation that the verdict is about."""
    forms = _OWED.get(f"{cause}/{variant}") or _OWED.get(cause) or _OWED[""]
    return forms[min(blamed, 2) - 1].format(operation)


def others_wait(waiting: int, *, many: bool) -> str:
    """``; 3 other ranks wait because of it``; nothing where nobody waits."""
    if not waiting:
        return ""
    return f"; {waiting:,} other rank{'s wait' if waiting != 1 else ' waits'} because of {'them' if many else 'it'}"


def sure(confidence: float | None) -> str:
    """``97 % sure``; never 100, since nothing here is certain."""
    return "how sure is not measured" if confidence is None else f"{min(max(round(confidence * 100), 0), 99)} % sure"
