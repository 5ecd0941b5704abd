"""`posthouse registry serve` and `posthouse registry user add|remove|list`: a schema registry over HTTP."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.logs import Level, log_to_stderr
from posthouse.cli.options import (
    PROXY_HEADER,
    AsJson,
    ProxyAudience,
    ProxyHeader,
    ProxyIssuer,
    ProxyKeys,
    RolesPath,
    TlsCert,
    TlsClientCa,
    TlsKey,
    tls_files,
    unfit,
)
from posthouse.cli.output import print_json, print_table, say
from posthouse.errors import ConfigurationError
from posthouse.governance.registry import users

app = typer.Typer(no_args_is_help=True, help="A schema registry over HTTP, for Confluent's clients and serializers.")
user_app = typer.Typer(no_args_is_help=True, help="The file of those who may use a registry.")
app.add_typer(user_app, name="user")

UsersFile = Annotated[Path, typer.Option("--users", metavar="FILE", help="The file of users.")]
Name = Annotated[str, typer.Argument(help="The user's name.")]


@app.command()
def serve(
    store: Annotated[
        str, typer.Option(help="Where schemas are kept: sqlite:///registry.db or postgresql://…")
    ] = "sqlite:///registry.db",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")] = 8081,
    users_file: Annotated[
        Path | None, typer.Option("--users", metavar="FILE", help="Who may ask; needed beyond the loopback.")
    ] = None,
    oidc_issuer: Annotated[
        str, typer.Option(metavar="URL", help="Bearer tokens of this provider of OpenID Connect are believed.")
    ] = "",
    oidc_audience: Annotated[str, typer.Option(metavar="AUD", help="What they say as `aud`.")] = "",
    proxy_keys: ProxyKeys = "",
    proxy_issuer: ProxyIssuer = "",
    proxy_audience: ProxyAudience = "",
    proxy_header: ProxyHeader = PROXY_HEADER,
    roles: RolesPath = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    most_bytes: Annotated[int, typer.Option(min=1_000, help="The largest body of a request.")] = 2 * 1024 * 1024,
    patience: Annotated[float, typer.Option(min=1.0, help="Seconds that one request may take.")] = 30.0,
    log_level: Annotated[Level, typer.Option(help="What is logged to stderr.")] = "info",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per line of the log.")] = False,
) -> None:
    """Serve a registry until it is interrupted. Any number of processes may share one store."""
    try:
        from posthouse.governance.registry.serving import Listening
        from posthouse.governance.registry.serving import serve as serve_registry
    except ImportError as error:
        raise ConfigurationError("a registry needs starlette and uvicorn: pip install 'posthouse[registry]'") from error
    if problems := unfit(
        issuer=oidc_issuer,
        proxy=proxy_keys,
        roles=roles,
        of_issuer={"--oidc-audience": oidc_audience},
        of_proxy={"--proxy-issuer": proxy_issuer, "--proxy-audience": proxy_audience},
    ):
        raise ConfigurationError(*problems)
    if roles and not (oidc_issuer or proxy_keys):
        raise ConfigurationError(
            "--roles is for --oidc-issuer or --proxy-keys: users have theirs in the file of --users"
        )
    if oidc_issuer and not oidc_audience:
        raise ConfigurationError("--oidc-issuer needs --oidc-audience AUD, or its tokens for others would do here")
    known = None
    if roles:
        try:
            from posthouse.cli.knowing import knowing
        except ImportError as error:
            raise ConfigurationError(
                f"--oidc-issuer and --proxy-keys need {error.name}, which is not installed: pip install 'posthouse[console]'"
            ) from error
        proxy = (proxy_keys, proxy_issuer, proxy_audience, proxy_header) if proxy_keys else None
        known = knowing(roles, issuer=(oidc_issuer, oidc_audience) if oidc_issuer else None, proxy=proxy)
    log_to_stderr(log_level, as_json=log_json)
    listening = Listening(
        host=host,
        port=port,
        users=users_file,
        known=known,
        tls=tls_files(tls_cert, tls_key, tls_client_ca),
        most_bytes=most_bytes,
        patience=patience,
    )
    asyncio.run(serve_registry(store, listening, lambda address: say(f"the registry listens on {address}")))


@user_app.command()
def add(
    name: Name,
    users_file: UsersFile,
    role: Annotated[str, typer.Option(help="read, write or admin.")] = "read",
    token: Annotated[
        bool, typer.Option("--token", help="Make a bearer token instead of asking for a password.")
    ] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from stdin instead of asking.")
    ] = False,
) -> None:
    """Add a user to the file, or give one a new secret. A token is printed once and kept only as a hash."""
    users.check_name(name)
    chosen = users.role_named(role)
    secret = users.new_token(name) if token else _password(password_stdin)
    users.keep_user(users_file, users.User(name, chosen, users.hashed(secret)))
    if token:
        typer.echo(secret)
    else:
        say(f"{name} may {chosen.name.lower()}", "green")


@user_app.command()
def remove(name: Name, users_file: UsersFile) -> None:
    """Take a user out of the file. A registry that runs notices at the next request."""
    users.drop_user(users_file, name)
    say(f"{name} is gone", "green")


@user_app.command("list")
def list_users(users_file: UsersFile, as_json: AsJson = False) -> None:
    """Show the users of a file and their roles."""
    found = users.read_users(users_file)
    if as_json:
        print_json([{"name": user.name, "role": user.role.name.lower()} for user in found.values()])
    else:
        print_table(("USER", "ROLE"), [(user.name, user.role.name.lower()) for user in found.values()])


def _password(from_stdin: bool) -> str:
    given = sys.stdin.readline().rstrip("\r\n") if from_stdin else typer.prompt("Password", hide_input=True)
    password = str(given)
    users.check_password(password)
    return password
