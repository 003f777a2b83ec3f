"""`mqtick-join` and SIGHUP: neighbours and certificates change while the node runs."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.tests.harness.events import until
from broker.tests.harness.sites import MARKS, Site, row_of, settled, works
from demo.local_broker import free_port
from tests.rig import Authority

pytestmark = MARKS
READ = "the configuration and the files that it names were read again"
STAYS = "; what was read before stays"
STRANGER = "it shows neither the certificate nor the secret of a neighbour"
UNLISTED = "neighbours.certificate_names does not list the name in its certificate"
BOTH = 'certificate_names = ["site-a", "site-b"]'


def reload(site: Site, *changes: tuple[str, str], says: str = READ) -> None:
    """Change a configuration, have it read again, and wait until the log `says` this."""
    text = site.config.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    site.config.write_text(text)
    before = site.log.read_text().count(says)
    assert site.process is not None
    site.process.send_signal(signal.SIGHUP)
    until(lambda: site.log.read_text().count(says) > before, f"{says!r}: {site.log.read_text()}")


@contextlib.contextmanager
def sites(folder: Path, *tables: str, port: int = 0) -> Iterator[list[Site]]:
    """Two sites. The second node connects to the first one; `port`: to its listener for nodes."""
    here, there = ({"tables": one} for one in tables)
    dialled = {"neighbours": [f"mqtts://127.0.0.1:{port}"]} if port else {}
    with row_of(folder, here, {**there, **dialled}) as found:
        settled(*found)
        yield found


def signed(folder: Path, *names: str) -> None:
    """Give nodes certificates of a new authority, in the files that they read."""
    made = folder / f"authority-{len(list(folder.iterdir()))}"
    made.mkdir()
    authority = Authority(made)
    for name in names:
        files = (*authority.issue(name), authority.certificate)
        for source, ending in zip(files, ("pem", "key", "ca"), strict=True):
            shutil.copy(source, folder / f"{name}.{ending}")


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[list[Site]]:
    """Two sites whose nodes show certificates; the second one connects to the first."""
    signed(tmp_path, "site-a", "site-b")
    tables, port = [], free_port()
    for name, at in (("site-a", port), ("site-b", free_port())):
        files = f"{tmp_path}/{name}"
        own = f'certificate = "{files}.pem"\nkey = "{files}.key"\n'
        tables.append(
            f'[neighbours]\nca_file = "{files}.ca"\n{own}{BOTH}\n'
            f'[[listener]]\naddress = "127.0.0.1:{at}"\n'
            f'[listener.tls]\n{own}client_ca = "{files}.ca"\n'
        )
    with sites(tmp_path, *tables, port=port) as found:
        yield found


@pytest.mark.needs("openssl")
def test_who_is_taken_off_the_list_loses_his_link_at_once_and_is_let_in_again_when_he_is_back(
    certified: list[Site],
) -> None:
    for here, name in zip(
        certified, ("site-b", "site-a"), strict=True
    ):  # who is dialled, who dials
        (there,) = (site for site in certified if site is not here)
        client = here.client("client")
        reload(here, (BOTH, f'certificate_names = ["{here.name}", "another"]'))
        assert (here.now("neighbours"), here.now("nodes")) == (0, 1)
        assert f"away: {STRANGER if here is certified[0] else UNLISTED}" in here.log.read_text()
        until(lambda: there.now("neighbours") == 0, f"{name} has no link any more")  # noqa: B023
        certified[1].says(STRANGER if here is certified[0] else UNLISTED)
        reload(here, (f'certificate_names = ["{here.name}", "another"]', BOTH))
        works(here, there, client)


@pytest.mark.needs("openssl")
def test_new_certificates_of_a_new_authority_hold_from_the_next_connection_on(
    certified: list[Site], tmp_path: Path
) -> None:
    here, there = certified
    client = here.client("client")
    signed(tmp_path, here.name, there.name)
    reload(here)
    reload(there)
    assert here.now("neighbours") == 1, "the link stays"
    (url,) = (one["place"] for one in there.status()["neighbours"])
    assert there.ask("remove", "site-a").returncode == 0
    assert there.ask("add", url).returncode == 0
    works(here, there, client)


def test_a_new_secret_ends_the_link_until_the_other_end_has_read_it_too(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    with sites(tmp_path, *[f'[neighbours]\nsecret_file = "{secret}"'] * 2) as (here, there):
        client = here.client("client")
        secret.write_text("second\n")
        reload(here)
        assert here.now("neighbours") == 0
        there.says(STRANGER)
        reload(there)
        works(here, there, client)


def test_a_neighbour_that_comes_into_the_configuration_is_dialled_and_one_that_goes_is_left(
    tmp_path: Path,
) -> None:
    with sites(tmp_path, "", "") as (here, there):
        client = here.client("client")
        reload(there, (f'"{here.url}"', ""))
        assert there.now("neighbours") == 0
        assert there.status()["neighbours"] == []
        reload(here, ("urls = []", f'urls = ["{there.url}"]'))
        works(here, there, client)


@pytest.mark.needs("openssl")
def test_where_one_file_is_wrong_nothing_changes_and_a_sentence_says_which(
    certified: list[Site], tmp_path: Path
) -> None:
    here, there = certified
    client = here.client("client")
    text, nobody = here.config.read_text(), (BOTH, 'certificate_names = ["nobody"]')
    for change, said in (
        ((BOTH, "certificate_names = 5"), "invalid type: integer `5`"),
        ((BOTH, "certificate_name = []"), "unknown field `certificate_name`"),
        (("[neighbours]", '[neighbours]\nsecret_file = "/none"'), "/none: No such file"),
        (("[neighbours]", '[access]\nacl_file = "/none"\n[neighbours]'), "/none: No such file"),
        (("keep_alive_s = 2", "keep_alive_s = 0"), "neighbours.keep_alive_s"),
    ):
        reload(here, nobody if change[0] != BOTH else (BOTH, BOTH), change, says=STAYS)
        assert said in here.log.read_text()
        assert said in here.status()["reload_error"]
        assert "configuration: the reload failed: " in here.ask("status").stdout
        here.config.write_text(text)
    for name, octets in (("key", b"x"), ("ca", b""), ("pem", b"-----BEGIN CERTIFICATE-----\nx")):
        file = tmp_path / f"site-a.{name}"
        good = file.read_bytes()
        file.write_bytes(octets)
        reload(here, nobody, says=STAYS)
        assert f"{tmp_path}/site-a." in here.status()["reload_error"]
        file.write_bytes(good)
        here.config.write_text(text)
    assert here.now("neighbours") == 1
    works(here, there, client)
    reload(here)
    assert here.status()["reload_error"] == ""


def test_what_needs_a_new_start_is_named_and_the_rest_holds(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of all nodes\n")
    with sites(tmp_path, "", "") as (here, there):
        reload(
            here,
            (f'"127.0.0.1:{here.port}"', f'"127.0.0.1:{free_port()}"'),
            (here.broker.url, "mqtt://127.0.0.1:1"),
            ("keep_alive_s = 2", f'keep_alive_s = 9\nsecret_file = "{secret}"'),
        )
        names = ["listener", "broker.url", "neighbours.keep_alive_s"]
        listed = ", ".join(names)
        here.says(f"{listed}: changed in the configuration; restart the node to use it")
        status = here.ask("status").stdout
        assert f"configuration: changed, used after a restart: {listed}" in status
        assert here.status()["after_restart"] == names
        here.client("still").publish("t", b"", qos=1)
        there.says(STRANGER)  # the secret holds
        # A list of names is of no use before somebody asks for certificates.
        listener = '[[listener]]\naddress = "127.0.0.1:0"\n[listener.tls]\nclient_ca = "a"\n'
        tls = listener + 'certificate = "c"\nkey = "k"\n'
        reload(
            here, ("[[listener]]", f"{tls}[[listener]]"), ("secret_file", f"{BOTH}\nsecret_file")
        )
        assert here.status()["after_restart"] == [*names, "neighbours"]
