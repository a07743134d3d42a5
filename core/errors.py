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

    def __init_subclass__(cls, fix: str = "") -> None:
        """`fix`: what helps against errors of this kind, if an error says nothing else; its parent's if left out."""
        cls.fix_by_default = fix or cls.fix_by_default

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


class NoPeers(PlanError, fix="Start macluster on a Mac and pair it."):
    """There is no Mac to plan for."""


class TooManyPeers(PlanError, fix="Leave a Mac out of the split."):
    """More Macs than layers."""


class BadBudget(PlanError, fix="Give every Mac in the split a budget above zero."):
    """A memory budget is zero or negative."""


class DoesNotFit(PlanError, fix="Free memory there, pair another Mac, or choose a smaller model."):
    """The model needs more memory than a Mac has."""


class IllegalCut(PlanError):
    """This family cannot be cut there."""


class ModelError(MaclusterError):
    """Something is wrong with a model."""


class ModelNotFound(ModelError, fix="`macluster models` lists what is here."):
    """No such model on this Mac."""


class BadModel(ModelError, fix="Download the model again."):
    """A file of the model is missing, damaged or hostile."""


class UnsupportedModel(ModelError):
    """The architecture cannot run here."""


class ModelMismatch(ModelError, fix="Copy the same model directory to both Macs."):
    """Two Macs hold different files under one name."""


class TransferError(ModelError, fix="Try again: it continues where it stopped."):
    """Files of a model can't be downloaded or copied. Files already here are kept."""


class TrustError(MaclusterError):
    """Identity, pairing or roster refused."""


class IdentityError(TrustError):
    """The device key cannot be used safely."""


class PairingError(TrustError, fix="Start pairing again on both Macs and compare the digits."):
    """Pairing was refused, timed out or compared wrong; nothing was saved."""


class RosterError(TrustError):
    """A roster is not validly signed, or is older."""


class OtherRoster(RosterError):
    """A roster of another format, which a newer macluster wrote."""


class RosterFork(RosterError):
    """Two different roster histories are both validly signed; a user decides which one counts."""


class NotPaired(TrustError, fix="Pair it first: `macluster pair`."):
    """A Mac in the plan is below "paired"."""


class LinkError(MaclusterError):
    """A link between two Macs failed."""


class ProtocolError(LinkError, fix="Run the same version of macluster on every Mac."):
    """Bytes that no honest peer sends."""


class NotUnderstood(ProtocolError):
    """A message of another version of macluster: it is ignored, and the link stays."""

    def __init__(self, what: str, fix: str = "", *, message: str = "") -> None:
        super().__init__(what, fix)
        self.message = message  # its frame and tag


class HandshakeError(LinkError, fix="If that Mac was reinstalled, pair it again."):
    """The other end did not prove who it is."""


class OtherVersion(HandshakeError):
    """The other end begins links in another version."""


class WrongKey(HandshakeError):
    """Another key answered than expected, or its certificate could sign others."""


class SealError(LinkError, fix="Try again. If it happens again, check for faulty or hostile network gear."):
    """A frame failed authentication: it was changed, replayed or reordered."""


class LinkLost(LinkError, fix="The log has the reason. Reload the model if it doesn't recover by itself."):
    """The other end went away."""


class LinkTimeout(LinkError, fix="Check whether that Mac is asleep or overloaded, then try again."):
    """The other end did not answer in time."""


class NoAnswer(LinkTimeout):
    """The ring did not answer after repeated requests."""


class GroupFailed(LinkError, fix="Load the model split by layers (`--parallelism pp`)."):
    """The ranks of a tensor plan can't form their group, or one of them left it."""


class WorkerError(MaclusterError):
    """A worker process failed."""


class WorkerDied(WorkerError, fix="Load the model again; the log says why it ended."):
    """A worker process ended."""


class CachesLost(WorkerError, fix="Ask again."):
    """A stage lost a cache that an answer needs; it can be rebuilt from the token log."""


class StageFailed(WorkerError, fix="That Mac's log has the reason."):
    """A stage could not compute."""


class SessionError(MaclusterError):
    """A saved session cannot be written, read, or used with this model."""


class NodeError(MaclusterError):
    """This Mac's node can't do the request."""


class NodeUnreachable(NodeError, fix="Start one: `macluster` with its screen, or `macluster node` without one."):
    """No node runs on this Mac."""


class VersionsDiffer(NodeError):
    """The node and this command have different versions, and can't do this together."""


class PortTaken(
    NodeError, fix="Quit that program, or choose another port: `macluster node --port 0` uses any free one."
):
    """Another program uses the node's port."""


class NotLoaded(NodeError, fix="Load one: `macluster load MODEL`."):
    """A request came while no model is loaded."""


class NotReady(NotLoaded, fix="Try again when that is over."):
    """A model is loading, or its plan is recovering."""


class Parked(NodeError, fix="Load the model again, then continue it: `macluster run MODEL --continue`."):
    """An answer stopped because a Mac is missing; its text is kept and can be continued."""


class Busy(NodeError, fix="Wait for it to finish, or cancel it."):
    """The queue is full, or another load is running."""

    retry_s = 1  # seconds until another try makes sense


def error_from(problem: Problem) -> MaclusterError:
    kinds = {cls.__name__: cls for cls in _all_errors(MaclusterError)}
    return kinds.get(problem.kind, MaclusterError)(problem.what, problem.fix)


def _all_errors(root: type[MaclusterError]) -> list[type[MaclusterError]]:
    return [root] + [e for child in root.__subclasses__() for e in _all_errors(child)]
