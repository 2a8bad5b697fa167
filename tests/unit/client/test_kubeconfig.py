# SPDX-License-Identifier: Apache-2.0
"""Which cluster and which user a set of kubeconfig files names."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from refloat.client import cluster_access, kubeconfig
from refloat.client.errors import KubeconfigError
from tests.cases import cases


def config(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    *,
    name: str = "x",
    current: str | None = None,
    namespace: str = "",
) -> dict[str, Any]:
    """A kubeconfig whose cluster, user and context have one name."""
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    return {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name if current is None else current,
    }


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def load(tmp_path: Path, document: Any, **how: Any) -> cluster_access.Access:
    return kubeconfig.load([write(tmp_path / "config", document)], **how)


class TestMerging:
    def test_the_first_file_that_names_a_thing_wins_as_a_whole(self, tmp_path: Path) -> None:
        first = write(tmp_path / "1", config(user={"token": "first"}, current=""))
        second = write(
            tmp_path / "2",
            config({"tls-server-name": "second"}, {"token": "second"}, namespace="other"),
        )
        access = kubeconfig.load([first, second])
        assert access.user.token == "first"
        assert access.cluster.server_name == ""
        assert access.namespace == "default"

    def test_the_first_current_context_wins(self, tmp_path: Path) -> None:
        files = [
            write(tmp_path / "1", config(name="a", current="")),
            write(tmp_path / "2", config(name="b")),
            write(tmp_path / "3", config(name="c")),
        ]
        assert kubeconfig.load(files).cluster.server == "https://b"
        assert kubeconfig.load(files, context="c").cluster.server == "https://c"

    def test_paths_count_from_the_file_that_they_stand_in(self, tmp_path: Path) -> None:
        user = {"client-certificate": "a.crt", "client-key": "/b.key", "tokenFile": "../t"}
        file = write(tmp_path / "sub" / "config", config({"certificate-authority": "ca"}, user))
        access = kubeconfig.load([file])
        assert access.cluster.authority.path == tmp_path / "sub" / "ca"
        assert access.user.certificate.path == tmp_path / "sub" / "a.crt"
        assert access.user.key.path == Path("/b.key")
        assert access.user.token_file == tmp_path / "t"

    def test_data_wins_over_a_file(self, tmp_path: Path) -> None:
        data = base64.b64encode(b"pem").decode()
        access = load(
            tmp_path, config({"certificate-authority": "ca", "certificate-authority-data": data})
        )
        assert access.cluster.authority == cluster_access.Source(data=b"pem")


class TestFinding:
    def test_the_named_file_is_the_only_one(self, tmp_path: Path) -> None:
        file = write(tmp_path / "named", config(name="a"))
        other = write(tmp_path / "other", config(name="b"))
        access = kubeconfig.find(file, environ={"KUBECONFIG": str(other)})
        assert access.cluster.server == "https://a"

    def test_kubeconfig_is_a_list_of_which_some_may_be_missing(self, tmp_path: Path) -> None:
        there = write(tmp_path / "there", config())
        environ = {"KUBECONFIG": f"{tmp_path}/missing:{there}::{there}"}
        assert kubeconfig.find(environ=environ).cluster.server == "https://x"

    def test_none_of_kubeconfig_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match="missing: no such file"):
            kubeconfig.find(environ={"KUBECONFIG": f"{tmp_path}/missing"})

    def test_a_named_file_must_be_there(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match="missing: cannot be read: No such file"):
            kubeconfig.find(tmp_path / "missing")

    def test_home_is_last(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", config())
        environ = {"HOME": str(tmp_path)}
        assert kubeconfig.find(environ=environ).cluster.server == "https://x"

    @pytest.mark.parametrize(
        ("host", "server"),
        [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
    )
    def test_in_a_pod_it_is_the_pods_own_cluster(
        self, host: str, server: str, tmp_path: Path
    ) -> None:
        for name in ("token", "ca.crt"):
            write(tmp_path / name, "x")
        write(tmp_path / "namespace", "mine\n")
        environ = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": "443",
            "HOME": str(tmp_path),
        }
        access = kubeconfig.find(environ=environ, service_account=tmp_path)
        assert access == cluster_access.Access(
            cluster_access.ClusterEndpoint(
                server, authority=cluster_access.Source(path=tmp_path / "ca.crt")
            ),
            cluster_access.User(token_file=tmp_path / "token"),
            "mine",
        )

    def test_without_a_token_it_is_not_in_a_pod(self, tmp_path: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        assert cluster_access.in_cluster(environ, tmp_path) is None


class TestUsers:
    def test_everything_that_a_user_can_have(self, tmp_path: Path) -> None:
        access = load(
            tmp_path,
            config(
                user={
                    "username": "me",
                    "password": "pw",
                    "as": "you",
                    "as-uid": "u",
                    "as-groups": ["g", "h"],
                    "as-user-extra": {"k": ["v", "w"]},
                }
            ),
        ).user
        assert (access.username, access.password) == ("me", "pw")
        assert access.impersonate == cluster_access.Impersonation(
            "you", "u", ("g", "h"), (("k", "v"), ("k", "w"))
        )

    def test_a_context_may_name_no_user(self, tmp_path: Path) -> None:
        document = config()
        del document["contexts"][0]["context"]["user"]
        assert load(tmp_path, document).user == cluster_access.User()

    def test_secrets_do_not_show(self, tmp_path: Path) -> None:
        access = load(tmp_path, config(user={"token": "hush"}))
        assert "hush" not in repr(access)

    def test_nulls_are_as_good_as_nothing(self, tmp_path: Path) -> None:
        access = load(tmp_path, config({"certificate-authority": None}, {"token": None}))
        assert access.user == cluster_access.User()


V1 = "client.authentication.k8s.io/v1"


def exec_user(**fields: Any) -> dict[str, Any]:
    return {"exec": {"command": "x", "apiVersion": V1, "interactiveMode": "Never", **fields}}


class TestPlugins:
    def test_everything_that_a_plugin_can_have(self, tmp_path: Path) -> None:
        user = exec_user(
            args=["a"],
            env=[{"name": "NAME", "value": "v"}],
            installHint="get it",
            provideClusterInfo=True,
        )
        assert load(tmp_path, config(user=user)).user.plugin == cluster_access.Plugin(
            "x", V1, ("a",), (("NAME", "v"),), "get it", wants_cluster=True, interactive="Never"
        )

    @pytest.mark.parametrize(
        ("command", "want"),
        [("name", "name"), ("./name", "{0}/name"), ("a/name", "{0}/a/name"), ("/b/n", "/b/n")],
    )
    def test_a_command_with_a_slash_counts_from_the_file(
        self, command: str, want: str, tmp_path: Path
    ) -> None:
        access = load(tmp_path, config(user=exec_user(command=command))).user.plugin
        assert access is not None
        assert access.command == want.format(tmp_path)

    def test_v1beta1_need_not_say_whether_it_asks(self, tmp_path: Path) -> None:
        user = exec_user(apiVersion=f"{V1}beta1", interactiveMode=None)
        access = load(tmp_path, config(user=user)).user.plugin
        assert access is not None
        assert access.interactive == "IfAvailable"


class TestServers:
    @cases(
        "cluster want",
        {
            "slash": ({"server": "https://h:6443/"}, "https://h:6443"),
            "path": ({"server": "https://h/k8s/c"}, "https://h/k8s/c"),
            "bare": ({"server": "h:8080"}, "http://h:8080"),
            "tls": ({"server": "h:8080", "insecure-skip-tls-verify": True}, "https://h:8080"),
        },
    )
    def test_how_a_server_is_read(self, cluster: dict[str, Any], want: str, tmp_path: Path) -> None:
        assert load(tmp_path, config(cluster)).cluster.server == want


MISTAKES: dict[str, tuple[Any, str]] = {
    "not YAML": ("a: [", "config: "),
    "not a mapping": ("[1]", "Expected `object`, got `array`"),
    "empty": ("", "there is no current-context"),
    "a token that is a number": (
        config(user={"token": 12}),
        "Expected `str | null`, got `int` - at `$.users[0].user.token`",
    ),
    "a namespace that YAML takes for a truth value": (
        "contexts: [{name: x, context: {namespace: n}}]",
        "Expected `str | null`, got `bool` - at `$.contexts[0].context.namespace`",
    ),
    "an unknown context": (config(current="z"), "context 'z' does not exist; there are: x"),
    "a context without a cluster": (
        {"contexts": [{"name": "x"}], "current-context": "x"},
        "context 'x': names no cluster",
    ),
    "an unknown cluster": (
        {"contexts": [{"name": "x", "context": {"cluster": "z"}}], "current-context": "x"},
        "context 'x': cluster 'z' does not exist; there are: none",
    ),
    "an unknown user": (
        {**config(), "users": []},
        "context 'x': user 'x' does not exist; there are: none",
    ),
    "two of one name": (
        {"users": [{"name": "u"}, {"name": "u"}]},
        "two entries in users are named 'u'",
    ),
    "no server": (config({"server": ""}), "cluster 'x': server: '': expected https://host:port"),
    "a server that is no URL": (config({"server": "ftp://h"}), "server: 'ftp://h': expected"),
    "a proxy of another kind": (
        config({"proxy-url": "socks5://me:pw@h:1"}),
        "proxy-url: socks5://...: expected http://host or https://host",
    ),
    "an authority that is not used": (
        config({"insecure-skip-tls-verify": True, "certificate-authority": "ca"}),
        "insecure-skip-tls-verify excludes a certificate-authority",
    ),
    "an authority that is not base64": (
        config({"certificate-authority-data": "?"}),
        "cluster 'x': certificate-authority-data: is not base64",
    ),
    "a certificate without its key": (
        config(user={"client-certificate": "a"}),
        "user 'x': client-key is missing",
    ),
    "a key without its certificate": (
        config(user={"client-key-data": "YQ=="}),
        "user 'x': client-certificate is missing",
    ),
    "a token and a password": (
        config(user={"token": "a", "username": "b"}),
        "a token and a username exclude each other",
    ),
    "an auth-provider": (config(user={"auth-provider": {"name": "gcp"}}), "auth-provider: "),
    "groups to act as without a user": (config(user={"as-groups": ["g"]}), "as: is missing"),
    "a plugin without a command": (config(user=exec_user(command="")), "exec.command: is missing"),
    "a plugin of another version": (
        config(user=exec_user(apiVersion=f"{V1}alpha1")),
        f"exec.apiVersion: '{V1}alpha1': expected {V1} or {V1}beta1",
    ),
    "a plugin that does not say whether it asks": (
        config(user=exec_user(interactiveMode=None)),
        "exec.interactiveMode: None: expected one of Never, IfAvailable, Always",
    ),
    "a plugin that asks in another way": (
        config(user=exec_user(interactiveMode="Maybe")),
        "exec.interactiveMode: 'Maybe': expected one of",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_file_and_field(name: str, tmp_path: Path) -> None:
    document, text = MISTAKES[name]
    with pytest.raises(KubeconfigError) as error:
        load(tmp_path, document)
    assert text in str(error.value)
    assert str(tmp_path / "config") in str(error.value)
    assert "me:pw" not in str(error.value)
