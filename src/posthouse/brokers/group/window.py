"""What one member has in hand of one partition. Pure: numbers in, numbers out.

Frames of a partition are numbered 1, 2, 3 … without gaps, so a cursor is one number and every count a subtraction.
"""

from __future__ import annotations

from collections.abc import Iterable


class Window:
    """The numbers from the committed cursor to the last one handed out, at most `size` of them.

    The bound counts from the committed cursor, not from the number of frames in hand: whoever takes the partition
    over after a crash then knows that nothing past cursor + size was ever handed out.
    """

    __slots__ = ("_again", "_open", "_returned", "committed", "done", "prefix", "read", "size", "touched", "unsure")

    def __init__(self, *, acked: int, touched: int, size: int, done: Iterable[int] = (), unsure: int = 0) -> None:
        self.committed = acked
        """The cursor as the log has it, and keeps it whatever crashes."""
        self.prefix = acked
        """Every number up to here was acknowledged."""
        self.read = acked
        """The last number handed out."""
        self.touched = touched
        """Numbers up to here may have been handed out by an earlier owner."""
        self.size = size
        self.done = set(done)
        """Acknowledged by an earlier owner, behind its cursor."""
        self.unsure = unsure
        """Numbers up to here may have been dealt with by an earlier owner that did not say so."""
        self._open: set[int] = set()
        self._again: set[int] = set()
        self._returned: set[int] = set()

    @property
    def idle(self) -> bool:
        """Nothing is in anybody's hands; what was handed back waits here or at the next owner."""
        return len(self._open) == len(self._again)

    def waiting(self, stored: int) -> bool:
        """Whether `take` would give anything."""
        return bool(self._again) or self.read < min(stored, self.committed + self.size)

    def has_left(self, stored: int) -> bool:
        """Whether something was not handed out, be it that the window is full."""
        return bool(self._again) or self.read < stored

    def take(self, limit: int, stored: int) -> list[tuple[int, int, bool]]:
        """Up to `limit` numbers to hand out now, as runs (first, last, again); those handed back come first, and those that
        nobody got are none of them."""
        runs: list[tuple[int, int, bool]] = []
        if self._again:
            again = sorted(self._again)[:limit]
            self._again.difference_update(again)
            limit -= len(again)
            for number in again:
                returned = number in self._returned
                if runs and runs[-1][1:] == (number - 1, returned):
                    runs[-1] = (runs[-1][0], number, returned)
                else:
                    runs.append((number, number, returned))
        fresh = 0 if self._again else min(limit, stored - self.read, self.committed + self.size - self.read)
        if fresh > 0:
            first, self.read = self.read + 1, self.read + fresh
            self._open.update(range(first, self.read + 1))
            runs.append((first, self.read, False))
        return runs

    def hand_out(self, last: int) -> None:
        """Numbers up to this one were read without having been taken: they are handed out."""
        self._open.update(range(self.read + 1, last + 1))
        self.read = max(self.read, last)

    def ack(self, number: int) -> None:
        self._open.discard(number)
        if self._again or self._returned:
            self._again.discard(number)
            self._returned.discard(number)

    def nack(self, number: int) -> None:
        if number in self._open:
            self._again.add(number)
            self._returned.add(number)

    def put_back(self, number: int) -> None:
        """It was taken, and nobody got it."""
        if number in self._open:
            self._again.add(number)

    def acknowledged(self) -> list[int]:
        """The numbers behind `prefix` that need not come again."""
        first = self.advance() + 1
        mine = [number for number in range(first, self.read + 1) if number not in self._open]
        return mine + sorted(number for number in self.done if number > max(self.prefix, self.read))

    def doubted(self, *, closed: bool) -> int:
        """The last number that may have been dealt with though nobody said so, once it is given back. Where the member has not
        `closed` its stream, that is also what it still has in hand."""
        return max(self.unsure, *self._returned, 0 if closed or self.idle else self.read)

    def advance(self) -> int:
        """Move `prefix` over everything acknowledged by now, and return it."""
        prefix, read, waiting = self.prefix, self.read, self._open
        if not waiting:
            prefix = read
        else:
            while prefix < read and prefix + 1 not in waiting:
                prefix += 1
        self.prefix = prefix
        return prefix
