# SPDX-License-Identifier: Apache-2.0
"""The cluster's own certificates: made once, renewed in time, and trusted."""

import ipaddress
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from refloat.app import certificates, private_files
from refloat.base.errors import UsageError
from tests.cases import cases

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HERE = "127.0.0.1"


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def served(path: Path) -> list[str]:
    names = read(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*names.get_values_for_type(x509.DNSName)] + [
        str(each) for each in names.get_values_for_type(x509.IPAddress)
    ]


def test_server_is_signed_by_the_authority(tmp_path: Path) -> None:
    paths = certificates.ensure(tmp_path / "pki", HERE, NOW)
    authority, server = read(paths.authority), read(paths.server)
    server.verify_directly_issued_by(authority)
    assert isinstance(server.public_key(), ec.EllipticCurvePublicKey)
    assert served(paths.server) == ["localhost", "kubernetes.default.svc", HERE, "::1"]


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    paths = certificates.ensure(tmp_path / "pki", HERE, NOW)
    for path in (paths.authority_key, paths.server_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "pki").stat().st_mode) == 0o700


def test_second_start_keeps_both(tmp_path: Path) -> None:
    paths = certificates.ensure(tmp_path / "pki", HERE, NOW)
    before = [paths.authority.read_bytes(), paths.server.read_bytes()]
    certificates.ensure(tmp_path / "pki", HERE, NOW + timedelta(days=100))
    assert [paths.authority.read_bytes(), paths.server.read_bytes()] == before


@cases("address later", {"another address": ("192.0.2.7", 0), "an end that is near": (HERE, 340)})
def test_server_is_made_anew_for(tmp_path: Path, address: str, later: int) -> None:
    paths = certificates.ensure(tmp_path / "pki", HERE, NOW)
    authority, server = paths.authority.read_bytes(), paths.server.read_bytes()
    certificates.ensure(tmp_path / "pki", address, NOW + timedelta(days=later))
    assert paths.authority.read_bytes() == authority
    assert paths.server.read_bytes() != server
    assert str(ipaddress.ip_address(address)) in served(paths.server)


def test_new_authority_brings_a_new_server(tmp_path: Path) -> None:
    paths = certificates.ensure(tmp_path / "pki", HERE, NOW)
    paths.authority_key.unlink()
    certificates.ensure(tmp_path / "pki", HERE, NOW)
    read(paths.server).verify_directly_issued_by(read(paths.authority))


def test_context_serves_with_them(tmp_path: Path) -> None:
    paths = certificates.ensure(tmp_path / "pki", HERE, NOW)
    assert certificates.server_context(paths).cert_store_stats()["x509"] >= 0


def test_file_is_written_whole_over_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    private_files.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_nodes_know_the_server_by_a_certificate_that_lasts_as_long_as_its_authority(
    tmp_path: Path,
) -> None:
    certificates.ensure(tmp_path, "127.0.0.1", NOW)
    certificate, _ = certificates.ensure_client(tmp_path, NOW)
    before = certificate.read_bytes()
    assert certificates.ensure_client(tmp_path, NOW)[0].read_bytes() == before
    (tmp_path / "ca.key").unlink()
    certificates.ensure(tmp_path, "127.0.0.1", NOW)
    assert certificates.ensure_client(tmp_path, NOW)[0].read_bytes() != before


def test_a_nodes_own_certificate_is_made_anew_for_another_address(tmp_path: Path) -> None:
    certificate, key = certificates.ensure_own(tmp_path, "127.0.0.1", NOW)
    before = certificate.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert certificates.ensure_own(tmp_path, "127.0.0.1", NOW)[0].read_bytes() == before
    assert certificates.ensure_own(tmp_path, "10.0.0.7", NOW)[0].read_bytes() != before


def _start(folder: Path) -> None:
    """What a server reads."""
    paths = certificates.ensure(folder, HERE, NOW)
    certificates.server_context(paths)
    certificates.client_context(*certificates.ensure_client(folder, NOW))


BAD = {
    "no content": ("server.crt", b"", "server.crt is not a certificate; remove it"),
    "binary": ("server.crt", b"\xff\0", "server.crt is not a certificate"),
    "an empty key": ("server.key", b"", "server.key is not the key of server.crt"),
    "a key of garbage": ("server.key", b"x" * 99, "server.key is not the key of"),
    "an empty authority": ("ca.crt", b"", "ca.crt is not a certificate; put ca.crt"),
    "no authority": ("ca.crt", b"garbage", "ca.crt is not a certificate"),
    "an authority without key": ("ca.key", b"", "ca.key is not a private key"),
    "an authority's bad key": ("ca.key", b"garbage", "ca.key is not a private key"),
    "a client": (f"{certificates.NODE_CLIENT}.crt", b"", "client.crt is not a certificate"),
}


@cases("name content want", BAD)
def test_a_file_that_is_no_certificate_is_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, want: str
) -> None:
    folder = tmp_path / "pki"
    _start(folder)
    private_files.write(folder / name, content)
    with pytest.raises(UsageError, match=want) as error:
        _start(folder)
    assert str(folder / name) in str(error.value)
    assert "remove" in str(error.value)


def test_the_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    _start(tmp_path / "pki")
    _start(tmp_path / "other")
    private_files.write(tmp_path / "pki" / "ca.key", (tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(UsageError, match=r"ca\.key is not the key of ca\.crt"):
        _start(tmp_path / "pki")


def test_the_key_of_another_server_is_refused(tmp_path: Path) -> None:
    _start(tmp_path / "pki")
    _start(tmp_path / "other")
    private_files.write(
        tmp_path / "pki" / "server.key", (tmp_path / "other" / "server.key").read_bytes()
    )
    with pytest.raises(UsageError, match=r"server\.key is not the key of server\.crt"):
        _start(tmp_path / "pki")


@pytest.mark.parametrize("name", ["ca.key", "server.key"])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "pki"
    _start(folder)
    (folder / name).chmod(0o640)
    with pytest.raises(UsageError, match=f"chmod 600 {folder / name}"):
        _start(folder)
