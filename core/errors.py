"""The error tree. Each docstring says when the error happens; users read `.what` and `.fix`."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it travels between processes."""

    kind: str  # class name
    what: str  # what happened, where
    fix: str = ""  # what to do


class MaclusterError(Exception):
    """Root of all errors shown to a user: `what` happened and where, `fix` what to do about it."""

    fix_by_default = ""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix or self.fix_by_default

    @property
    def problem(self) -> Problem:
        return Problem(kind=type(self).__name__, what=self.what, fix=self.fix)

    def __str__(self) -> str:
        return f"{self.what} {self.fix}".strip()


class UsageError(MaclusterError):
    """Wrong use of a command or of the API."""


class ContextExceeded(UsageError):
    """The prompt leaves no room for an answer."""


class PlanError(MaclusterError):
    """No plan can be made."""


class NoPeers(PlanError):
    """There is no Mac to plan for."""

    fix_by_default = "Start macluster on a Mac and pair it."


class TooManyPeers(PlanError):
    """More Macs than layers."""

    fix_by_default = "Leave a Mac out of the split."


class BadBudget(PlanError):
    """A memory budget is zero or negative."""

    fix_by_default = "Give every Mac in the split a budget above zero."


class DoesNotFit(PlanError):
    """The model needs more memory than a Mac has."""

    fix_by_default = "Free memory there, pair another Mac, or choose a smaller model."


class IllegalCut(PlanError):
    """This family cannot be cut there."""


class ModelError(MaclusterError):
    """Something is wrong with a model."""


class ModelNotFound(ModelError):
    """No such model on this Mac."""

    fix_by_default = "`macluster models` lists what is here."


class BadModel(ModelError):
    """A file of the model is missing, damaged or hostile."""

    fix_by_default = "Download the model again."


class UnsupportedModel(ModelError):
    """The architecture cannot run here."""


class ModelMismatch(ModelError):
    """Two Macs hold different files under one name."""

    fix_by_default = "Copy the same model directory to both Macs."


class TransferError(ModelError):
    """Files of a model can't be downloaded or copied. Files already here are kept."""

    fix_by_default = "Try again: it continues where it stopped."


class TrustError(MaclusterError):
    """Identity, pairing or roster refused."""


class IdentityError(TrustError):
    """The device key cannot be used safely."""


class PairingError(TrustError):
    """Pairing was refused, timed out or compared wrong; nothing was saved."""

    fix_by_default = "Start pairing again on both Macs and compare the digits."


class RosterError(TrustError):
    """A roster is not validly signed, or is older."""


class OtherRoster(RosterError):
    """A roster of another format, which a newer macluster wrote."""


class RosterFork(RosterError):
    """Two different roster histories are both validly signed; a user decides which one counts."""


class NotPaired(TrustError):
    """A Mac in the plan is below "paired"."""

    fix_by_default = "Pair it first: `macluster pair`."


class LinkError(MaclusterError):
    """A link between two Macs failed."""


class ProtocolError(LinkError):
    """Bytes that no honest peer sends."""

    fix_by_default = "Run the same version of macluster on every Mac."


class NotUnderstood(ProtocolError):
    """A message of another version of macluster: it is ignored, and the link stays."""

    def __init__(self, what: str, fix: str = "", *, message: str = "") -> None:
        super().__init__(what, fix)
        self.message = message  # its frame and tag


class HandshakeError(LinkError):
    """The other end did not prove who it is."""

    fix_by_default = "If that Mac was reinstalled, pair it again."


class OtherVersion(HandshakeError):
    """The other end begins links in another version."""


class WrongKey(HandshakeError):
    """Another key answered than expected, or its certificate could sign others."""


class SealError(LinkError):
    """A frame failed authentication: it was changed, replayed or reordered."""

    fix_by_default = "Try again. If it happens again, check for faulty or hostile network gear."


class LinkLost(LinkError):
    """The other end went away."""

    fix_by_default = "The log has the reason. Reload the model if it doesn't recover by itself."


class LinkTimeout(LinkError):
    """The other end did not answer in time."""

    fix_by_default = "Check whether that Mac is asleep or overloaded, then try again."


class NoAnswer(LinkTimeout):
    """The ring did not answer after repeated requests."""


class GroupFailed(LinkError):
    """The ranks of a tensor plan can't form their group, or one of them left it."""

    fix_by_default = "Load the model split by layers (`--parallelism pp`)."


class WorkerError(MaclusterError):
    """A worker process failed."""


class WorkerDied(WorkerError):
    """A worker process ended."""

    fix_by_default = "Load the model again; the log says why it ended."


class CachesLost(WorkerError):
    """A stage lost a cache that an answer needs; it can be rebuilt from the token log."""

    fix_by_default = "Ask again."


class StageFailed(WorkerError):
    """A stage could not compute."""

    fix_by_default = "That Mac's log has the reason."


class SessionError(MaclusterError):
    """A saved session cannot be written, read, or used with this model."""


class NodeError(MaclusterError):
    """This Mac's node can't do the request."""


class NodeUnreachable(NodeError):
    """No node runs on this Mac."""

    fix_by_default = "Start one: `macluster` with its screen, or `macluster node` without one."


class VersionsDiffer(NodeError):
    """The node and this command have different versions, and can't do this together."""


class PortTaken(NodeError):
    """Another program uses the node's port."""

    fix_by_default = "Quit that program, or choose another port: `macluster node --port 0` uses any free one."


class NotLoaded(NodeError):
    """A request came while no model is loaded."""

    fix_by_default = "Load one: `macluster load MODEL`."


class NotReady(NotLoaded):
    """A model is loading, or its plan is recovering."""

    fix_by_default = "Try again when that is over."


class Parked(NodeError):
    """An answer stopped because a Mac is missing; its text is kept and can be continued."""

    fix_by_default = "Load the model again, then continue it: `macluster run MODEL --continue`."


class Busy(NodeError):
    """The queue is full, or another load is running."""

    fix_by_default = "Wait for it to finish, or cancel it."
    retry_s = 1  # seconds until another try makes sense


def error_from(problem: Problem) -> MaclusterError:
    kinds = {cls.__name__: cls for cls in _all_errors(MaclusterError)}
    return kinds.get(problem.kind, MaclusterError)(problem.what, problem.fix)


def _all_errors(root: type[MaclusterError]) -> list[type[MaclusterError]]:
    return [root] + [e for child in root.__subclasses__() for e in _all_errors(child)]
