"""Certificates of the lab's stand-ins are what TLS clients and KEDA's rotation accept."""

import datetime as dt

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from lab.stand_ins.signing import issue, new_authority


def loaded(pair):
    return x509.load_pem_x509_certificate(pair.certificate.encode())


def verify(authority, pair, name):
    store = Store([loaded(authority)])
    return PolicyBuilder().store(store).build_server_verifier(x509.DNSName(name)).verify(loaded(pair), [])


def test_a_signed_certificate_verifies_for_each_of_its_names():
    authority = new_authority("signer")
    pair = issue(authority, ["a.b.svc", "a.b.svc.cluster.local"])
    for name in ("a.b.svc", "a.b.svc.cluster.local"):
        assert verify(authority, pair, name)[-1] == loaded(authority)


def test_a_certificate_serves_both_ends_because_kedas_parts_know_each_other_by_it():
    purposes = loaded(issue(new_authority("signer"), ["x"])).extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert set(purposes.value) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_certificates_outlive_the_ninety_days_that_kedas_rotation_looks_ahead():
    authority = new_authority("KEDA", ["KEDA"])
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=91)
    assert loaded(authority).not_valid_after_utc > later
    assert loaded(issue(authority, ["x"])).not_valid_after_utc > later


def test_an_authority_has_the_names_that_it_is_verified_under():
    names = loaded(new_authority("KEDA", ["KEDA"])).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["KEDA"]


def test_a_long_name_is_cut_in_the_subject_only():
    name = f"{'a' * 60}.{'b' * 60}.svc"
    authority = new_authority("signer")
    assert verify(authority, issue(authority, [name]), name)
