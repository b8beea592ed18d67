from __future__ import annotations

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.state.files import replace_file
from pdctl.state.record import DeploymentRecord, RecordStore


@pytest.fixture
def store(tmp_path) -> RecordStore:
    return RecordStore(directory=tmp_path / "deployments")


def test_what_was_saved_is_loaded_and_named(store):
    record = DeploymentRecord(name="demo", plan=b'{"a": 1}', topology=b"name: demo\n")
    store.save(record)
    store.save(DeploymentRecord(name="a-2", plan=b"{}"))
    assert (store.load("demo"), store.load("a-2").topology) == (record, None)
    assert store.names() == ("a-2", "demo")


def test_saving_again_replaces(store):
    store.save(DeploymentRecord(name="demo", plan=b"1"))
    store.save(DeploymentRecord(name="demo", plan=b"2"))
    assert store.load("demo").plan == b"2"
    assert [path.name for path in store.folder("demo").iterdir()] == ["plan.json"]


def test_no_record_is_none_and_no_name(store):
    assert (store.load("demo"), store.names()) == (None, ())
    store.remove("demo")


def test_removing_takes_the_audit_log_too(store):
    store.save(DeploymentRecord(name="demo", plan=b"1"))
    store.audit_path("demo").write_bytes(b"{}\n")
    store.remove("demo")
    assert not store.folder("demo").exists()


def test_folders_without_a_plan_are_not_deployments(store):
    store.audit_path("half").parent.mkdir(parents=True)
    (store.directory / "Not A Name").mkdir()
    (store.directory / "file").touch()
    assert store.names() == ()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "UPPER", "-a", "a" * 64, "a.b", "a\n"])
def test_a_name_that_could_lead_elsewhere_is_refused(store, name):
    with pytest.raises(ValueError, match="is not a deployment name"):
        store.load(name)


def test_a_record_that_cannot_be_read_is_a_diagnostic(store):
    store.folder("demo").mkdir(parents=True)
    (store.folder("demo") / "plan.json").mkdir()
    with pytest.raises(DiagnosticError) as caught:
        store.load("demo")
    (fault,) = caught.value.diagnostics
    assert fault.code == "PD506"
    assert "plan.json`: Is a directory" in fault.message


def test_a_record_that_cannot_be_written_is_a_diagnostic_and_leaves_no_rest(store):
    store.directory.parent.mkdir(exist_ok=True)
    store.directory.write_text("a file in the way")
    with pytest.raises(DiagnosticError, match="PD506: cannot write"):
        store.save(DeploymentRecord(name="demo", plan=b"1"))


def test_a_failed_replacement_keeps_the_old_content(tmp_path):
    target = tmp_path / "file"
    target.mkdir()
    with pytest.raises(DiagnosticError, match="cannot write"):
        replace_file(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_records_are_the_users_alone(store):
    store.save(DeploymentRecord(name="demo", plan=b"1"))
    assert (store.folder("demo") / "plan.json").stat().st_mode & 0o077 == 0
    assert store.folder("demo").stat().st_mode & 0o077 == 0


def test_a_retired_record_is_not_listed_but_can_be_loaded(store: RecordStore) -> None:
    store.save(DeploymentRecord(name="demo", plan=b"{}"))
    store.retire("demo")
    assert store.names() == ()
    assert store.load("demo") == DeploymentRecord(name="demo", plan=b"{}")
    store.save(DeploymentRecord(name="demo", plan=b"[]"))
    assert store.names() == ("demo",)
    assert store.load("demo") == DeploymentRecord(name="demo", plan=b"[]")


def test_retiring_what_is_not_on_record_is_no_fault(store: RecordStore) -> None:
    store.retire("demo")
    assert store.load("demo") is None
