"""The token logs of this Mac: opening, closing and continuing them, and deleting the old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from core.errors import NodeError, SealError
from core.events import FinishReason
from core.node.answers.running_answer import RunningAnswer
from core.node.answers.token_log import AnswerRecord, TokenLog, Written, forget_shared, old_logs, unfinished
from core.node.base.context import NodeContext
from core.trust.sealed_files import forget


class AnswerArchive:
    """This Mac's token logs; those of running answers are never deleted."""

    def __init__(self, node: NodeContext, running: Mapping[str, RunningAnswer]) -> None:
        self._folder, self._secret, self._running = node.home.tokens, node.identity.secret("token log"), running
        self._journal, self._tasks = node.journal, node.tasks
        self._turn_to_open = asyncio.Lock()
        self._unsettled: set[str] = set()  # requests whose logs are being opened or closed
        self._closings: set[asyncio.Task[None]] = set()
        self._revoked: set[str] = set()  # Macs that were revoked while this node ran
        self.old_logs = asyncio.Lock()  # held while logs are deleted or continued

    async def open(self, record: AnswerRecord) -> TokenLog:
        """Open a log, on disk before the client gets its first event, in the order of requests. Raises NodeError."""
        async with self._turn_to_open:
            self._unsettled.add(record.request_id)
            try:
                log = TokenLog(self._folder, self._secret, record)
                try:
                    await asyncio.to_thread(log.syncing())
                except BaseException:  # even if the caller was cancelled
                    log.forget()
                    raise
                return log
            except OSError as error:
                raise unwritable(error) from error
            finally:
                self._unsettled.discard(record.request_id)

    async def continued(self, record: AnswerRecord, written: Written) -> TokenLog:
        """Open a log that replaces the one of `written`. Raises NodeError."""
        try:
            return await asyncio.to_thread(
                TokenLog.going_on, self._folder, self._secret, record, written.tokens, written.text
            )
        except OSError as error:
            raise unwritable(error) from error

    def close(self, running: RunningAnswer, reason: FinishReason | None, then: Callable[[], None]) -> None:
        """Force the rest of the log to disk, then call `then`; without a `reason` the answer can be continued."""
        self._unsettled.add(running.request_id)
        closing = self._tasks.spawn("The end of an answer", self._close(running, reason, then))
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    async def closed(self) -> None:
        if self._closings:
            await asyncio.wait(self._closings)

    async def unfinished(self) -> list[Written]:
        before = self._in_use()
        found = await asyncio.to_thread(unfinished, self._folder, self._secret, before)
        return [one for one in found if one.record.request_id not in self._in_use()]

    async def forget_old(self) -> None:
        """Delete all logs but the newest. Answers that start meanwhile keep theirs: which ones run is checked after
        their logs were listed.
        """
        try:
            async with self.old_logs:
                for path in await asyncio.to_thread(old_logs, self._folder):
                    if path.stem not in self._in_use():
                        await asyncio.to_thread(forget, path)
        except SealError as error:
            self._journal.warn(str(error))

    async def forget_shared(self, macs: Collection[str]) -> None:
        """Delete the logs of answers in which one of `macs` took part; of running ones, when they end. Raises
        SealError.
        """
        self._revoked.update(macs)
        await self.closed()
        async with self.old_logs:  # or an answer that is continued meanwhile would restore one
            count = await asyncio.to_thread(forget_shared, self._folder, self._secret, macs, self._in_use())
        if count:
            self._journal.info(f"Deleted {count} token log(s) of answers in which that Mac took part.")

    def _in_use(self) -> set[str]:
        return self._unsettled | self._running.keys()

    async def _close(self, running: RunningAnswer, reason: FinishReason | None, then: Callable[[], None]) -> None:
        try:
            with suppress(OSError):  # the answer's problem reports it already
                await asyncio.to_thread(running.log.close, reason)
            with suppress(OSError, SealError):
                if reason and not self._revoked.isdisjoint(running.macs):
                    await asyncio.to_thread(running.log.forget)
        finally:  # after any failure: a client waits for the end
            self._unsettled.discard(running.request_id)
            then()


def unwritable(error: OSError) -> NodeError:
    what = f"The answer can't be saved on this Mac's disk: {error.strerror}."
    return NodeError(what, "Free some space, then try again.")
