"""`python -m melmastoon.terraform`: the variables for what `posthouse catalog export terraform` writes, as JSON."""

from __future__ import annotations

import msgspec

from melmastoon.platform import SERVICES
from melmastoon.production import terraform_of
from posthouse import app_of


def main() -> None:
    groups = {group: service.name for service in SERVICES for group in app_of(service).opened.topology().groups}
    print(msgspec.json.format(msgspec.json.encode(terraform_of(groups))).decode())


if __name__ == "__main__":
    main()
