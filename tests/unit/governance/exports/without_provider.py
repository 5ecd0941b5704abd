"""main.tf for a Terraform that has no provider: each resource becomes a terraform_data that holds its arguments.

Terraform then evaluates every expression, loop, condition and precondition of the file. What the provider would say about
names of arguments is not tested this way.
"""

from __future__ import annotations

import re

_PROVIDERS = re.compile(r"\n  required_providers \{.*?\n  \}\n", re.DOTALL)
_PROJECT = re.compile(r'data "google_project" "this" \{.*?\n\}\n', re.DOTALL)
_RESOURCE = re.compile(r'^resource "(\w+)" "(\w+)" \{\n(.*?)^\}$', re.DOTALL | re.MULTILINE)
_LIFECYCLE = re.compile(r"^  lifecycle \{.*?^  \}\n", re.DOTALL | re.MULTILINE)
_REPEATED = re.compile(r"^  (?:for_each|count) .*\n", re.MULTILINE)
_DYNAMIC = re.compile(r'  dynamic "(\w+)" \{\n    for_each = (.*?)\n\n    content \{(.*?)\n    \}\n  \}', re.DOTALL)
_BLOCK = re.compile(r"^(\s+)(\w+) \{$", re.MULTILINE)
_REFERENCE = re.compile(r"\b(google_(?:pubsub_\w+|service_account))\.(\w+)((?:\[[^\]]*\])?)(?=\.)")


def without_provider(main: str) -> str:
    made = _PROJECT.sub("", _PROVIDERS.sub("\n", main)).replace("data.google_project.this[0].number", '"123"')
    made = _RESOURCE.sub(_data, made)
    made = _REFERENCE.sub(r"terraform_data.\1__\2\3.output", made)
    accounts = "in terraform_data.google_service_account__service : name => account.output.email"
    return made.replace("in google_service_account.service : name => account.email", accounts)


def _data(resource: re.Match[str]) -> str:
    """What the provider would know of a resource stands beside its arguments."""
    kind, name, body = resource.groups()
    lifecycle = "".join(_LIFECYCLE.findall(body)).replace("    prevent_destroy = true\n", "")
    repeated = "".join(_REPEATED.findall(body))
    arguments = _REPEATED.sub("", _LIFECYCLE.sub("", body))
    arguments = _DYNAMIC.sub(r"  \1 = [for \1 in [for one in \2 : { value = one }] : {\3\n  }]", arguments)
    arguments = _BLOCK.sub(r"\1\2 = {", arguments)
    known = f'  id = "{kind}"\n  email = "{kind}"\n  member = "serviceAccount:{kind}"\n'
    return (
        f'resource "terraform_data" "{kind}__{name}" {{\n{repeated}  input = {{\n{known}{arguments}  }}\n{lifecycle}}}'
    )
