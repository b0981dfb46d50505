"""A variable that is empty, such as one that a CI job passes on without a value, is one that is not set."""

from __future__ import annotations

import pytest

from servers import nobody_listens
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import cloud, open_source, open_store
from tar2tf_cli.stores.ais import tls

VARIABLES = {
    "s3": ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_CA_BUNDLE", "AWS_REGION"],
    "gs": ["GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_BASE_URL"],
    "az": ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURE_STORAGE_SAS_TOKEN", "AZURE_FEDERATED_TOKEN_FILE"],
}


@pytest.mark.parametrize(("scheme", "variable"), [(scheme, name) for scheme in VARIABLES for name in VARIABLES[scheme]])
def test_an_empty_variable_of_a_cloud_is_not_set(scheme: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "a"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "YQ=="),
        (variable, ""),
    ):
        monkeypatch.setenv(name, value)
    with nobody_listens() as port:
        url = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(cloud, "AMAZON", url)
        assert open_store(f"{scheme}://bucket").client  # which obstore refused, or panicked about
        with pytest.raises(SourceError, match="gave up after 1 attempt"):
            open_source(f"{scheme}://bucket", endpoint=url, retry_for=0).list(["*.tar"])


def test_an_empty_proxy_does_not_hide_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "a")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "YQ==")
    monkeypatch.setenv("HTTPS_PROXY", "")
    with nobody_listens() as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(SourceError, match=f"proxy 127.0.0.1:{port}: Connection refused"):
            open_source("az://bucket", retry_for=0).list(["*.tar"])


def test_an_empty_variable_of_aistore_does_not_hide_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIS_SKIP_VERIFY_CRT", "")
    monkeypatch.setenv("AIS_SKIP_VERIFY", "true")
    assert tls() == (False, None)
