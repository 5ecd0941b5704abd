"""file-storage-service: uploads and their scan."""

from __future__ import annotations

import hashlib

import pytest

from melmastoon.facts.file import FileScanned, FileUploaded
from melmastoon.file import file
from melmastoon.file.commands import LARGEST, download, upload
from melmastoon.file.scanning import SIGNATURES
from posthouse import Reject
from posthouse.testing import Harness


async def test_an_upload_is_said_scanned_and_then_given_out() -> None:
    async with Harness(file) as house:
        async with file.transaction("t1") as tx:
            assert await upload(tx, "f1", b"a picture", purpose="room_picture", media_type="image/jpeg")
            with pytest.raises(Reject, match="not scanned yet"):
                await download(tx, "f1")
        await house.settled()
        [uploaded] = await house.published(FileUploaded)
        assert (uploaded.data.size_bytes, uploaded.data.sha256) == (9, hashlib.sha256(b"a picture").hexdigest())
        [scanned] = await house.published(FileScanned)
        assert (scanned.data.file_id, scanned.data.verdict, scanned.data.signature) == ("f1", "clean", "")
        assert scanned.causation == uploaded.id
        async with file.transaction("t1") as tx:
            assert await download(tx, "f1") == b"a picture"
        await house.assert_replay_safe()


@pytest.mark.parametrize("signature", SIGNATURES)
async def test_what_is_infected_is_never_given_out(signature: str) -> None:
    async with Harness(file) as house:
        async with file.transaction("t1") as tx:
            await upload(tx, "f1", b"x" + SIGNATURES[signature], purpose="logo", media_type="image/png")
        await house.settled()
        [scanned] = await house.published(FileScanned)
        assert (scanned.data.verdict, scanned.data.signature) == ("infected", signature)
        async with file.transaction("t1") as tx:
            with pytest.raises(Reject, match="is infected"):
                await download(tx, "f1")


async def test_files_are_never_changed() -> None:
    async with Harness(file) as house:
        async with file.transaction("t1") as tx:
            await upload(tx, "f1", b"one", purpose="logo", media_type="image/png")
            assert not await upload(tx, "f1", b"one", purpose="logo", media_type="image/png")
            with pytest.raises(Reject, match="is another file already"):
                await upload(tx, "f1", b"two", purpose="logo", media_type="image/png")
            with pytest.raises(Reject, match="are the most"):
                await upload(tx, "f2", bytes(LARGEST + 1), purpose="logo", media_type="image/png")
        await house.settled()
        assert len(await house.published(FileUploaded)) == 1


async def test_a_file_of_another_tenant_is_not_there() -> None:
    async with Harness(file) as house:
        async with file.transaction("t1") as tx:
            await upload(tx, "f1", b"one", purpose="logo", media_type="image/png")
        await house.settled()
        async with file.transaction("t2") as tx:
            with pytest.raises(Reject, match="no file f1"):
                await download(tx, "f1")
