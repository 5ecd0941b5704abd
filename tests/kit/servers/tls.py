"""Servers that speak TLS and ask for certificates, for the tests: an authority of our own, and servers that wear what it gave them.

They are those of the neighbouring modules with other settings. `wear` puts another certificate on one and starts it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
from abc import abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from posthouse.testing.scratch import LoopThread
from tests.kit.servers import kafka, nats, postgres, pubsub, rabbitmq, redis, sqs
from tests.kit.servers.process import Server, folder_of, listens, started
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.versions import binaries_of

Worn = Literal["good", "renewed", "expired", "other-name", "stranger"]
"""`other-name` belongs to another host; `stranger` was given by an authority that nobody here knows."""
DAY = timedelta(days=1)
HERE = x509.IPAddress(ip_address("127.0.0.1"))
WORD = serialization.NoEncryption()


class Authority:
    """It gives certificates, for the loopback unless said otherwise, and keeps them as files in its folder."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Posthouse's tests, {name}")])
        self._public = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self.certificate = folder / "ca.pem"
        made = (
            _builder(self._name, self._name, self._key, until=datetime.now(UTC) + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(self._public, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def give(
        self, name: str, *, host: x509.GeneralName = HERE, common: str = "server", ended: bool = False
    ) -> tuple[Path, Path]:
        """The files of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        until = datetime.now(UTC) + (-DAY if ended else DAY)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = (
            _builder(subject, self._name, key, until=until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName([host]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        certificate, secret = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        secret.touch(0o600)
        form = serialization.PrivateFormat.PKCS8
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, WORD))
        return certificate, secret


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, until: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(until - 10 * DAY).not_valid_after(until)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


class Wardrobe:
    """What a server may wear, as `server.pem` and `server.key`, and what its clients show."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        self.stranger = Authority(folder / "stranger", "a stranger")
        self.authority.give("good")
        self.authority.give("renewed")
        self.authority.give("expired", ended=True)
        self.authority.give("other-name", host=x509.DNSName("elsewhere.example"))
        self.client, self.client_key = self.authority.give("client", common="shop")
        self.stranger.give("stranger")
        self.strange_client, self.strange_key = self.stranger.give("client", common="shop")
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.both = folder / "both.pem"
        """The key and the certificate in one file."""
        self.put_on("good")

    @property
    def ca(self) -> Path:
        return self.authority.certificate

    def put_on(self, worn: Worn) -> None:
        folder = (self.stranger if worn == "stranger" else self.authority).folder
        for kind, place in ((".pem", self.certificate), (".key", self.key)):
            place.write_bytes((folder / f"{worn}{kind}").read_bytes())
        self.key.chmod(0o600)
        self.both.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())

    @property
    def words(self) -> dict[str, str]:
        """What a good client's URL says."""
        return {"tls_ca": str(self.ca), "tls_cert": str(self.client), "tls_key": str(self.client_key)}


class Guarded:
    """A server behind TLS. `refusal` is what is said of it to who speaks plain text, whichever library words it."""

    clothes: Wardrobe
    refusal: str

    @abstractmethod
    def plain(self) -> str:
        """Its URL without a word of TLS."""

    def url_with(self, **words: str | None) -> str:
        """Its URL for a good client, with words said differently; None leaves one out."""
        said = {name: word for name, word in {**self.clothes.words, **words}.items() if word is not None}
        base = self.plain()
        return f"{base}{'&' if '?' in base else '?'}{urlencode(said)}" if said else base

    @abstractmethod
    def wear(self, worn: Worn) -> None:
        """It is started again with this certificate."""


class Restarted(Guarded, Server):
    """One that reads its certificate when it starts."""

    _worn: Worn = "good"

    def wear(self, worn: Worn) -> None:
        if worn != self._worn:
            self.end(signal.SIGTERM)
            self.clothes.put_on(worn)
            self._worn = worn
            self.start()


class TlsNats(Restarted, nats.NatsServer):
    refusal = "no TLS: "

    def plain(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        (self._folder / "nats.conf").write_text(
            f'listen: 127.0.0.1:{self.port}\njetstream {{ store_dir: "{self._folder}/data" }}\n'
            f'tls {{ cert_file: "{self.clothes.certificate}", key_file: "{self.clothes.key}", '
            f'ca_file: "{self.clothes.ca}", verify: true }}\n'
        )
        return [str(self._program), "-c", str(self._folder / "nats.conf")]


class TlsRedis(Restarted, redis.RedisServer):
    refusal = "reset by peer|closed by server"

    def plain(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        return greeted(self.port, self.clothes, b"PING\r\n").startswith(b"+PONG")


class TlsRabbitmq(Restarted, rabbitmq.RabbitmqServer):
    refusal = "reset by peer"

    def plain(self) -> str:
        return f"rabbitmq://shop:shop@127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        command = super()._command()
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nlisteners.ssl.local = 127.0.0.1:{self.port}\n"
            f"load_definitions = {self._folder}/definitions.json\nlog.console = false\n"
            "vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n"
            f"ssl_options.cacertfile = {self.clothes.ca}\nssl_options.certfile = {self.clothes.certificate}\n"
            f"ssl_options.keyfile = {self.clothes.key}\nssl_options.verify = verify_peer\n"
            "ssl_options.fail_if_no_peer_cert = true\n"
        )
        return command

    def _answers(self) -> bool:
        return bool(greeted(self.port, self.clothes, rabbitmq.GREETING))


class TlsKafka(Restarted, kafka.KafkaServer):
    """Its own listener asks for certificates; the one for proxies stays plain, for the server itself."""

    refusal = "Timed out"  # the driver says no more

    def plain(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        file = self._folder / "server.properties"
        settings = file.read_text()
        if "ssl.keystore" not in settings:
            settings = settings.replace("MAIN:PLAINTEXT", "MAIN:SSL").replace(
                "inter.broker.listener.name=MAIN", "inter.broker.listener.name=LINK"
            )
            settings = settings.replace(f"LINK://127.0.0.1:{self.link}", f"LINK://127.0.0.1:{self.behind}")
            settings = settings.replace("super.users=User:ANONYMOUS", "super.users=User:ANONYMOUS;User:CN=shop")
            settings += (
                f"ssl.keystore.type=PEM\nssl.keystore.location={self.clothes.both}\nssl.client.auth=required\n"
                f"ssl.truststore.type=PEM\nssl.truststore.location={self.clothes.ca}\n"
            )
            file.write_text(settings)
        return super()._command()

    def _answers(self) -> bool:
        return listens(self.port) and listens(self.behind)


class TlsPostgres(Guarded):
    """`shop` must come with a certificate in that name; `postgres` is let in as it comes, for the tests themselves."""

    refusal = "no encryption"
    ROLES = "CREATE ROLE shop LOGIN SUPERUSER REPLICATION"
    RULES = (
        "host all postgres 127.0.0.1/32 trust\nhost replication postgres 127.0.0.1/32 trust\n"
        "hostssl all shop 127.0.0.1/32 cert\nhostssl replication shop 127.0.0.1/32 cert\n"
    )

    def __init__(self, clothes: Wardrobe, maintenance: str, user: int | None) -> None:
        self.clothes = clothes
        self.maintenance = maintenance
        self._user = user
        self._worn: Worn = "good"
        with psycopg.connect(maintenance, autocommit=True) as connection:
            connection.execute(self.ROLES)
            connection.execute("CREATE DATABASE shop OWNER shop")

    def plain(self) -> str:
        return self.maintenance.replace("postgres@", "shop@").replace("/postgres", "/shop")

    def wear(self, worn: Worn) -> None:
        """It reads its files again, and everybody has to connect anew."""
        if worn == self._worn:
            return
        self.clothes.put_on(worn)
        owned(self.clothes, self._user)
        self._worn = worn
        with psycopg.connect(self.maintenance, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop' AND pid <> pg_backend_pid()"
            )


class Fronted(Guarded):
    """A server without TLS of its own, behind a proxy that asks for certificates."""

    refusal = "Socket closed|reset by peer|broken pipe"

    def __init__(self, clothes: Wardrobe, port: int, url: str) -> None:
        self.clothes = clothes
        self._url = url
        self._worn: Worn = "good"
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clothes.ca))
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._tls.set_alpn_protocols(["h2", "http/1.1"])
        self._tls.load_cert_chain(clothes.both)
        self._thread = LoopThread()
        self._proxy = self._thread.run(Proxy("127.0.0.1", port, tls=self._tls).__aenter__())

    def plain(self) -> str:
        return self._url.format(port=self._proxy.port)

    def wear(self, worn: Worn) -> None:
        """From the next connection on; those that there are, are cut."""
        if worn == self._worn:
            return
        self.clothes.put_on(worn)
        self._worn = worn
        self._tls.load_cert_chain(self.clothes.both)
        self._thread.run(self._proxy.cut())
        self._thread.run(self._proxy.heal())

    def close(self) -> None:
        self._thread.run(self._proxy.__aexit__())
        self._thread.close()


class TlsSqs(Fronted):
    """Its scheme says whether there is TLS."""

    refusal = "Connection was closed"

    def url_with(self, **words: str | None) -> str:
        url = super().url_with(**words)
        return url.replace("https:", "http:") if words.get("tls") == "false" else url


def owned(clothes: Wardrobe, user: int | None) -> None:
    """PostgreSQL reads a key that is its own alone."""
    if user is not None:
        os.chown(clothes.key, user, -1)


def greeted(port: int, clothes: Wardrobe, words: bytes) -> bytes:
    """What a server says to a good client; nothing where it is not there yet."""
    context = ssl.create_default_context(cafile=clothes.ca)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # whatever it wears, it is up
    context.load_cert_chain(clothes.client, clothes.client_key)
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=2) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(words)
        return connection.recv(64)
    return b""


@contextlib.contextmanager
def serving(kind: str) -> Iterator[Guarded]:
    """A new server of this kind with nothing in it."""
    with folder_of(f"tls-{kind}") as folder:
        folder.chmod(0o755)
        clothes = Wardrobe(folder)
        if kind == "postgresql":
            with _postgres(folder, clothes) as database:
                yield database
            return
        if kind in FRONTED:
            with FRONTED[kind](clothes) as fronted:
                yield fronted
            return
        server = _made(kind, folder, clothes)
        with contextlib.ExitStack() as ends:
            if isinstance(server, TlsRabbitmq):
                ends.callback(server.close)
            yield ends.enter_context(started(server))


@contextlib.contextmanager
def _sqs(clothes: Wardrobe) -> Iterator[Guarded]:
    with sqs.running(remembered=4.0) as server:
        fronted = TlsSqs(clothes, server.port, "sqs://test:test@eu-central-1?endpoint=https://127.0.0.1:{port}")
        with contextlib.closing(fronted):
            yield fronted


@contextlib.contextmanager
def _pubsub(clothes: Wardrobe) -> Iterator[Guarded]:
    with pubsub.running() as server:
        fronted = Fronted(clothes, server.port, "pubsub://shop?emulator=127.0.0.1:{port}&lease=10")
        with contextlib.closing(fronted):
            yield fronted


FRONTED = {"sqs": _sqs, "pubsub": _pubsub}


def _made(kind: str, folder: Path, clothes: Wardrobe) -> Restarted:
    server: Restarted
    if kind == "nats":
        server = TlsNats(nats.program(), folder)
    elif kind == "redis":
        server = TlsRedis(redis.program(), folder, {**redis.DURABLE})
        server._settings = {
            **redis.DURABLE,
            "port": "0",
            "tls-port": str(server.port),
            "tls-cert-file": str(clothes.certificate),
            "tls-key-file": str(clothes.key),
            "tls-ca-cert-file": str(clothes.ca),
        }
    elif kind == "rabbitmq":
        server = TlsRabbitmq(rabbitmq.home(), folder)
    else:
        jars = kafka.kafka_jars()
        server = made = TlsKafka(jars, folder, [*kafka.JVM, *kafka.shared_classes(jars)])
        made.clothes = clothes
        made.make()
    server.clothes = clothes
    return server


@contextlib.contextmanager
def _postgres(folder: Path, clothes: Wardrobe) -> Iterator[TlsPostgres]:
    user = postgres.unprivileged()
    owned(clothes, user)
    rules = folder / "pg_hba.conf"
    rules.write_text(TlsPostgres.RULES)
    settings = {
        **postgres.SETTINGS,
        "hba_file": str(rules),
        "ssl": "on",
        "ssl_cert_file": str(clothes.certificate),
        "ssl_key_file": str(clothes.key),
        "ssl_ca_file": str(clothes.ca),
    }
    with postgres.running(binaries_of(15), settings) as url:
        yield TlsPostgres(clothes, url, user)
