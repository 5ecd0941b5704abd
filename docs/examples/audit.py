"""An audit log: somebody changes what was logged, and is found out; one event is proven far from it."""

import asyncio
import subprocess
import sys
from pathlib import Path

from posthouse import App, Audit, Payload, Service

orders = Service("orders", namespace="shop")


@orders.event("invoice.issued.v1", key="invoice_id", retention="cold")
class InvoiceIssued(Payload):
    invoice_id: str
    total_cents: int


app = App(
    orders,
    audit=Audit(place="log", second="second", keys="keys.toml", private="private"),
)


def posthouse(words: str) -> list[str]:
    """The lines that a command prints."""
    command = [sys.executable, "-m", "posthouse", *words.split()]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def is_logged() -> bool:
    return any(Path("log").glob("events/*"))


async def said() -> str:
    """Publish three facts, and wait until they are logged; the id of the second."""
    async with app.running():
        async with orders.transaction() as tx:
            ids = [tx.publish(InvoiceIssued(invoice_id=f"i{number}", total_cents=99900)) for number in range(3)]
        while not is_logged():  # noqa: ASYNC110  # another task does it
            await asyncio.sleep(0.05)
    return ids[1]


def main() -> None:
    posthouse("keys new audit-1 --use audit --source /shop --private private --file keys.toml")
    id = asyncio.run(said())
    posthouse("audit checkpoint log --second second --private private")
    print(*posthouse("audit verify log --second second"))
    posthouse(f"audit prove {id} log --out proof.txt")

    [file] = Path("log/events").iterdir()
    logged = file.read_bytes()
    second = logged.index(b"99900", logged.index(b"99900") + 1)
    file.write_bytes(logged[:second] + b"10000" + logged[second + 5 :])
    print(posthouse("audit verify log --second second")[0].replace(id, "ID"))
    print(posthouse("audit check proof.txt")[-1].replace(id, "ID"))


if __name__ == "__main__":
    main()
