"""What programs do with the client of Kubernetes in Python, against the server that KUBECONFIG names.

It exits with 0 if all is as in a cluster.
"""

import base64
import os
import sys
import threading
import uuid

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

GROUP, VERSION, NAMESPACE = "networking.istio.io", "v1", "python"


def entry(name, address="10.0.0.1"):
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "hosts": [f"{name}.{NAMESPACE}"],
            "location": "MESH_INTERNAL",
            "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "endpoints": [{"address": address}],
        },
    }


def same(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got!r}, not {want!r}")


def refused(what, code, call, *args, **named):
    try:
        call(*args, **named)
    except ApiException as e:
        same(what, e.status, code)
        return
    sys.exit(f"{what} succeeds")


def custom_objects():
    """The CustomObjectsApi: objects as dictionaries."""
    api = client.CustomObjectsApi()
    where = (GROUP, VERSION, NAMESPACE, "serviceentries")
    made = api.create_namespaced_custom_object(*where, entry("web"))
    same("the kind", made["kind"], "ServiceEntry")
    refused("a second one", 409, api.create_namespaced_custom_object, *where, entry("web"))
    patched = api.patch_namespaced_custom_object(*where, "web", {"metadata": {"labels": {"team": "shop"}}})
    same("the labels", patched["metadata"]["labels"], {"app": "web", "team": "shop"})
    refused("a replace of an old version", 409, api.replace_namespaced_custom_object, *where, "web", made)
    patched["spec"]["endpoints"] = [{"address": "10.0.0.2"}]
    api.replace_namespaced_custom_object(*where, "web", patched)
    for name in ("a", "b", "c"):
        api.create_namespaced_custom_object(*where, entry(name))
    names, token = [], None
    while token != "":
        page = api.list_namespaced_custom_object(*where, limit=2, **({"_continue": token} if token else {}))
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
    same("the pages", names, ["a", "b", "c", "web"])
    selected = api.list_cluster_custom_object(GROUP, VERSION, "serviceentries", label_selector="team=shop")
    same("by label", [item["metadata"]["name"] for item in selected["items"]], ["web"])
    follow(api, where)
    api.delete_namespaced_custom_object(*where, "a")
    refused("what is deleted", 404, api.get_namespaced_custom_object, *where, "a")
    api.delete_collection_namespaced_custom_object(*where)
    same("after the deletion of all", api.list_namespaced_custom_object(*where)["items"], [])


def follow(api, where):
    """A watch shows what happens from a version on."""
    version = api.list_namespaced_custom_object(*where)["metadata"]["resourceVersion"]
    api.create_namespaced_custom_object(*where, entry("watched"))
    api.delete_namespaced_custom_object(*where, "watched")
    w, types = watch.Watch(), []
    for event in w.stream(api.list_namespaced_custom_object, *where, resource_version=version, timeout_seconds=30):
        if event["object"]["metadata"]["name"] == "watched":
            types.append(event["type"])
        if event["type"] == "DELETED":
            w.stop()
    same("the watch", (types[0], types[-1]), ("ADDED", "DELETED"))


def dynamic_client():
    """The dynamic client: kinds by discovery, and server-side apply."""
    d = dynamic.DynamicClient(client.ApiClient())
    entries = d.resources.get(api_version=f"{GROUP}/{VERSION}", kind="ServiceEntry")
    same("the resource", (entries.name, entries.namespaced), ("serviceentries", True))
    made = entries.server_side_apply(body=entry("applied"), name="applied", namespace=NAMESPACE, field_manager="one")
    same("the managers", [m.manager for m in made.metadata.managedFields], ["one"])
    again = entries.server_side_apply(body=entry("applied"), name="applied", namespace=NAMESPACE, field_manager="one")
    same("an apply of the same", again.metadata.resourceVersion, made.metadata.resourceVersion)
    other = entry("applied", "10.0.0.3")
    refused("another manager", 409, entries.server_side_apply, body=other, name="applied", namespace=NAMESPACE, field_manager="two")
    forced = entries.server_side_apply(
        body=other, name="applied", namespace=NAMESPACE, field_manager="two", force_conflicts=True
    )
    same("the address", forced.spec.endpoints[0].address, "10.0.0.3")
    entries.patch(
        body={"metadata": {"labels": {"by": "patch"}}},
        name="applied",
        namespace=NAMESPACE,
        content_type="application/merge-patch+json",
    )
    for event in entries.watch(namespace=NAMESPACE, timeout=30):
        same("the watch", event["object"].metadata.name, "applied")
        break
    same("by label", len(entries.get(namespace=NAMESPACE, label_selector="by=patch").items), 1)
    entries.delete(name="applied", namespace=NAMESPACE)


def core():
    """The typed client: a secret, whose data nobody reads, and a setting."""
    api = client.CoreV1Api()
    secret = client.V1Secret(
        metadata=client.V1ObjectMeta(name="door", namespace=NAMESPACE),
        data={"password": base64.b64encode(b"swordfish").decode()},
    )
    api.create_namespaced_secret(NAMESPACE, secret)
    same("the data", api.read_namespaced_secret("door", NAMESPACE).data, None)
    api.delete_namespaced_secret("door", NAMESPACE)
    setting = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="settings"), data={"color": "red"})
    api.create_namespaced_config_map(NAMESPACE, setting)
    api.patch_namespaced_config_map("settings", NAMESPACE, {"data": {"color": "blue"}})
    same("the setting", api.read_namespaced_config_map("settings", NAMESPACE).data, {"color": "blue"})
    api.delete_namespaced_config_map("settings", NAMESPACE)
    same("the namespace", api.read_namespace(NAMESPACE).status.phase, "Active")
    same("the version", client.VersionApi().get_code().major != "", True)


def leader():
    """One leads, by a Lease."""
    leads = threading.Event()
    identity = str(uuid.uuid4())
    lock = LeaseLock("leader", NAMESPACE, identity)
    terms = electionconfig.Config(
        lock, lease_duration=5, renew_deadline=4, retry_period=1, onstarted_leading=leads.set, onstopped_leading=None
    )
    threading.Thread(target=leaderelection.LeaderElection(terms).run, daemon=True).start()
    if not leads.wait(30):
        sys.exit("nobody leads")
    lease = client.CoordinationV1Api().read_namespaced_lease("leader", NAMESPACE)
    same("the leader", lease.spec.holder_identity, identity)


config.load_kube_config()
client.CoreV1Api().create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
for scenario in (custom_objects, dynamic_client, core, leader):
    scenario()
    print(scenario.__name__, "works", flush=True)
os._exit(0)  # the one who leads never ends
