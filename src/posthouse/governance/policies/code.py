"""Code: what source files say about publishing, calling and importing, read without running them."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.events.envelope import PLATFORM
from posthouse.governance.policies.finding import Place
from posthouse.governance.policies.readable import readable_names
from posthouse.governance.policies.words import one_of

_ALLOW = re.compile(r"#\s*posthouse:\s*allow\s+([\w-]+)\s*(?::\s*(.*))?$")
_RANDOM = one_of("uuid1 uuid4 uuid7 new_id token_hex token_urlsafe random randint time now utcnow monotonic")

TENANT_AT = {"transaction": 0, "joined": 1, "record": sys.maxsize, "add": sys.maxsize, "add_now": sys.maxsize}
"""Calls that take a tenant, and its place among the positional arguments; far behind all where it has none."""

_IDENTIFYING = one_of("idempotency_key correlation")
_SAYING = one_of("publish add add_now transaction joined record execute")

KeyGiven = Literal["missing", "random", "given"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One file of Python, by its module's name."""

    module: str
    file: str
    text: str


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is imported in `module`."""

    module: str
    name: str
    place: Place


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """An event is published, or added to an outbox, in `function`. `event` is the class by its full name as far as imports
    tell; `platform` means that the code says it belongs to no tenant; `prefix` is the constant text that the idempotency
    key begins with, None where it is not written there."""

    function: str
    event: str
    key: KeyGiven
    prefix: str | None
    platform: bool
    place: Place


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """`option` of a call in `function` is made of `names`: variables, fields and items that can be read in it. `event` is the
    class that is said there, by its full name; empty where none is."""

    function: str
    option: str
    names: tuple[str, ...]
    event: str
    place: Place


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is called in `function`, by its full name as far as imports tell."""

    function: str
    name: str
    place: Place


class Tenanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that takes a tenant, of a service that the file calls `service`; whether it `names` one."""

    function: str
    service: str
    names: bool
    place: Place


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """`# posthouse: allow <rule>: <reason>` in a line."""

    rule: str
    reason: str
    place: Place


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `unawaited` are calls of ours that do nothing until somebody awaits them, which nobody does.
    `declarations` are classes and functions by `module.qualname`."""

    imports: tuple[Import, ...] = ()
    publishes: tuple[Publish, ...] = ()
    identified: tuple[Identified, ...] = ()
    calls: tuple[Call, ...] = ()
    unawaited: tuple[Call, ...] = ()
    tenanted: tuple[Tenanted, ...] = ()
    comments: tuple[Comment, ...] = ()
    declarations: dict[str, Place] = {}


def read(sources: Iterable[Source]) -> Code:
    """Read every file. Raises ConfigurationError for those that are not Python."""
    readers: list[_Reader] = []
    comments: list[Comment] = []
    problems: list[str] = []
    for source in sources:
        try:
            reader = _Reader(source)
            reader.visit(ast.parse(source.text, filename=source.file))
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            problems.append(f"{source.file}, line {line}: this is not Python that can be read: {error}")
            continue
        readers.append(reader)
        comments += _comments(source)
    if problems:
        raise ConfigurationError(*problems)
    return Code(
        imports=tuple(one for reader in readers for one in reader.imports),
        publishes=tuple(one for reader in readers for one in reader.publishes),
        identified=tuple(one for reader in readers for one in reader.identified),
        calls=tuple(one for reader in readers for one in reader.calls),
        unawaited=tuple(one for reader in readers for one in reader.unawaited),
        tenanted=tuple(one for reader in readers for one in reader.tenanted),
        comments=tuple(comments),
        declarations={name: place for reader in readers for name, place in reader.declarations.items()},
    )


def _comments(source: Source) -> Iterator[Comment]:
    if "posthouse:" not in source.text:
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT and (found := _ALLOW.match(token.string)):
            line = token.start[0]
            place = Place(file=source.file, line=line, until=line)
            yield Comment(rule=found[1], reason=(found[2] or "").strip(), place=place)


class _Reader(ast.NodeVisitor):
    """Walks one file, and knows in which function it is, what names stand for, and for whom a transaction works."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._scope: list[str] = []
        self._names: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._platform = 0
        self.imports: list[Import] = []
        self.publishes: list[Publish] = []
        self.identified: list[Identified] = []
        self.calls: list[Call] = []
        self.unawaited: list[Call] = []
        self.tenanted: list[Tenanted] = []
        self._transactions: frozenset[str] = frozenset()
        """Names of those whose methods are to be awaited."""
        self.declarations: dict[str, Place] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imported(alias.name, node)
            self._names[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = self._origin(node)
        for alias in node.names:
            full = f"{origin}.{alias.name}"
            self._imported(full, node)
            self._names[alias.asname or alias.name] = full

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._declared(node)
        self._inside(node, node.name)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call that is a statement: whatever it gives is dropped."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and self._to_be_awaited(node.value):
            name = ast.unparse(node.value.func)
            self.unawaited.append(Call(function=self._where, name=name, place=self._place(node)))

    def _to_be_awaited(self, call: ast.Call) -> bool:
        called = call.func
        if not isinstance(called, ast.Attribute):
            return False
        if called.attr == "add":
            return _is_outbox(called.value)
        if called.attr in ("start_saga", "decide"):
            return bool(call.args) and self._is_transaction(call.args[0])
        return called.attr in ("execute", "cancel") and self._is_transaction(called.value)

    def _is_transaction(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute) and node.attr == "tx":  # `turn.tx`
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._transactions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_With(self, node: ast.With) -> None:
        self._block(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self._block(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """`placed = OrderPlaced(…)`: a name that is published later."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._values[target.id] = self._full(node.value.func)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = self._full(node.func)
        self.calls.append(Call(function=self._where, name=name, place=self._place(node)))
        verb = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if verb == "publish" and node.args:
            self._published(node, node.args[:1], platform=self._platform > 0)
        elif verb in ("add", "add_now") and any(word.arg == "tenant" for word in node.keywords):
            self._published(node, node.args[1:], platform=_says_platform(_keyword(node, "tenant")))
        if verb in _SAYING:
            self._note_identified(node)
        self._note_tenant(node)

    def _note_identified(self, node: ast.Call) -> None:
        events = [event for payload in node.args if (event := self._event(payload))] or [""]
        for word in node.keywords:
            names = tuple(dict.fromkeys(readable_names(word.value)))
            if word.arg in _IDENTIFYING and names:
                for event in events:
                    self.identified.append(
                        Identified(
                            function=self._where, option=word.arg, names=names, event=event, place=self._place(node)
                        )
                    )

    def _note_tenant(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in TENANT_AT:
            return
        of = node.func.value
        if _is_outbox(of):
            of = of.value if isinstance(of, ast.Attribute) else of
        elif node.func.attr in ("add", "add_now"):
            return
        named = any(word.arg in ("tenant", None) for word in node.keywords)
        named = (
            named
            or len(node.args) > TENANT_AT[node.func.attr]
            or any(isinstance(one, ast.Starred) for one in node.args)
        )
        self.tenanted.append(
            Tenanted(function=self._where, service=ast.unparse(of), names=named, place=self._place(node))
        )

    def _published(self, node: ast.Call, payloads: list[ast.expr], *, platform: bool) -> None:
        key = _keyword(node, "idempotency_key")
        for payload in payloads:
            if event := self._event(payload):
                self.publishes.append(
                    Publish(
                        function=self._where,
                        event=event,
                        key=_key_given(key),
                        prefix=_prefix(key),
                        platform=platform,
                        place=self._place(node),
                    )
                )

    def _event(self, payload: ast.expr) -> str:
        if isinstance(payload, ast.Call):
            return self._full(payload.func)
        return self._values.get(payload.id, "") if isinstance(payload, ast.Name) else ""

    def _block(self, node: ast.With | ast.AsyncWith) -> None:
        opened = sum(_is_platform_transaction(item.context_expr) for item in node.items)
        self._platform += opened
        before = self._transactions
        names = {item.optional_vars.id for item in node.items if isinstance(item.optional_vars, ast.Name)}
        begun = {
            item.optional_vars.id
            for item in node.items
            if isinstance(item.optional_vars, ast.Name) and _begins(item.context_expr)
        }
        self._transactions = before - names | (begun if isinstance(node, ast.AsyncWith) else set())
        self.generic_visit(node)
        self._transactions = before
        self._platform -= opened

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._declared(node)
        outer, self._values = self._values, dict(self._values)
        before, arguments = self._transactions, [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given = {one.arg for one in arguments if one.annotation is not None and self._is_tx(one.annotation)}
        self._transactions = before - {one.arg for one in arguments} | given
        self._inside(node, node.name, "<locals>")
        self._values, self._transactions = outer, before

    def _is_tx(self, annotation: ast.expr) -> bool:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return annotation.value.rpartition(".")[2] in ("Tx", "Turn")
        return self._full(annotation).startswith("posthouse.") and self._full(annotation).endswith((".Tx", ".Turn"))

    def _inside(self, node: ast.AST, *names: str) -> None:
        self._scope += names
        self.generic_visit(node)
        del self._scope[-len(names) :]

    def _declared(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        header = max(node.lineno, node.body[0].lineno - 1)
        place = Place(file=self._source.file, line=first, until=header)
        self.declarations[".".join((self._source.module, *self._scope, node.name))] = place

    def _imported(self, name: str, node: ast.stmt) -> None:
        self.imports.append(Import(module=self._source.module, name=name, place=self._place(node)))

    def _origin(self, node: ast.ImportFrom) -> str:
        """The module that is imported from, also where it is written with leading dots."""
        if not node.level:
            return node.module or ""
        package = self._source.module.split(".")
        is_package = self._source.file.endswith("__init__.py")
        above = package[: len(package) - node.level + is_package]
        return ".".join((*above, node.module) if node.module else above)

    def _full(self, node: ast.expr) -> str:
        """`shop.orders.OrderPlaced`, for a name that is imported or of this module; empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        first = self._names.get(node.id)
        return ".".join((first or f"{self._source.module}.{node.id}", *reversed(parts)))

    @property
    def _where(self) -> str:
        return ".".join((self._source.module, *self._scope)).removesuffix(".<locals>")

    def _place(self, node: ast.stmt | ast.expr) -> Place:
        return Place(file=self._source.file, line=node.lineno, until=node.end_lineno or node.lineno)


def _is_outbox(node: ast.expr) -> bool:
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) == "outbox"


def _begins(node: ast.expr) -> bool:
    """Whether a block is one of ours: those of drivers take other words, and theirs are to be awaited as well."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("transaction", "joined")
    )


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in node.keywords if word.arg == name), None)


def _is_platform_transaction(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "transaction"):
        return False
    return _says_platform(node.args[0] if node.args else _keyword(node, "tenant"))


def _says_platform(node: ast.expr | None) -> bool:
    named = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return named == "PLATFORM" or (isinstance(node, ast.Constant) and node.value == PLATFORM)


def _key_given(node: ast.expr | None) -> KeyGiven:
    if node is None or (isinstance(node, ast.Constant) and not node.value):
        return "missing"
    called = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called}
    return "random" if names & _RANDOM else "given"


def _prefix(node: ast.expr | None) -> str | None:
    """The constant text at the start; None where the key is no text that is written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return None
