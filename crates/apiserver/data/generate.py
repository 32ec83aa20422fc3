#!/usr/bin/env python3
"""Writes builtin-schemas.json.gz from an unpacked `kubernetes-validate` package and three Go modules.

Usage: generate.py PACKAGE API APIMACHINERY APIEXTENSIONS_APISERVER [OUTPUT]

The definitions of the kinds that the embedded server serves are taken with everything they refer to.
Descriptions go; what says how values are typed, merged and told apart stays. The Go modules (k8s.io/api,
k8s.io/apimachinery and k8s.io/apiextensions-apiserver) say which fields are written when they are zero. The
output depends on the input alone, so a second run gives the same bytes.
"""

import gzip
import json
import pathlib
import sys

import gotypes

RELEASE = "v1.37.0"

# group -> version -> kinds, or None for every kind of that version.
SERVED = {
    "": {"v1": [
        "Pod", "Node", "Namespace", "Service", "ServiceAccount", "ConfigMap", "Secret", "Event",
        "PersistentVolumeClaim", "PersistentVolume", "ReplicationController", "Endpoints", "LimitRange",
        "ResourceQuota", "PodTemplate", "Binding",
    ]},
    "apps": {"v1": None},
    "batch": {"v1": None},
    "policy": {"v1": None},
    "autoscaling": {"v1": ["Scale", "HorizontalPodAutoscaler"], "v2": None},
    "scheduling.k8s.io": {"v1": ["PriorityClass"]},
    "coordination.k8s.io": {"v1": ["Lease"]},
    "discovery.k8s.io": {"v1": ["EndpointSlice"]},
    "rbac.authorization.k8s.io": {"v1": None},
    "admissionregistration.k8s.io": {"v1": None},
    "apiextensions.k8s.io": {"v1": ["CustomResourceDefinition"]},
    "events.k8s.io": {"v1": ["Event"]},
    "authentication.k8s.io": {"v1": None},
    "authorization.k8s.io": {"v1": None},
    "networking.k8s.io": {"v1": ["Ingress", "IngressClass", "NetworkPolicy"]},
    "storage.k8s.io": {"v1": ["StorageClass"]},
}

KEPT = (
    "type", "format", "required", "properties", "items", "additionalProperties", "default",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy",
)

# Types that are read from more than one JSON type, or from any. The package spells them loosely.
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"x-kubernetes-int-or-string": True, "format": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "x-kubernetes-int-or-string": True, "format": "int-or-string"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": {},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": {},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": {},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": {},
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {"type": "string", "format": "micro-time"},
}

# One field of that kind is an atom to apply: whoever writes it owns it whole.
ATOMS = {("io.k8s.api.apps.v1.ControllerRevision", "data")}

# Server-side apply fills an absent list key with the field's default. The package has lost the defaults,
# so those of list keys are stated here: a constant, or the zero value of a key that is required.
KEY_DEFAULTS = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.LocalObjectReference", "name"): "",
    ("io.k8s.api.apps.v1.DaemonSetCondition", "type"): "",
    ("io.k8s.api.apps.v1.DeploymentCondition", "type"): "",
    ("io.k8s.api.apps.v1.ReplicaSetCondition", "type"): "",
    ("io.k8s.api.apps.v1.StatefulSetCondition", "type"): "",
}

# An empty list of these asks the server to forget them: it must be seen, so it does not fall away.
ASKED_EMPTY = {("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "managedFields")}
ZERO = {"string": "", "integer": 0, "number": 0, "boolean": False}


def name_of(ref):
    return ref.rsplit("/", 1)[1]


def slim(node):
    """The node with only what the server needs; references become the definition's bare name."""
    if isinstance(node.get("$ref"), str):
        out = {"$ref": name_of(node["$ref"])}
        node = {k: v for k, v in node.items() if k.startswith("x-kubernetes-")}
    else:
        out = {}
    for key in KEPT:
        if key not in node:
            continue
        value = node[key]
        if key == "type" and isinstance(value, list):
            value = next(t for t in value if t != "null")
        elif key == "properties":
            value = {k: slim(v) for k, v in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            value = slim(value)
        out[key] = value
    return out


def references(node):
    if isinstance(node, dict):
        # A property may itself be called "$ref" (custom resource schemas): then it is no reference.
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def served_kinds(definitions):
    """group/version/kind -> definition name."""
    kinds = {}
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            group, version, kind = gvk.get("group", ""), gvk["version"], gvk["kind"]
            versions = SERVED.get(group, {})
            if version not in versions:
                continue
            # DeleteOptions, WatchEvent and the like claim every group; they are no resource of any.
            if ".apimachinery." in name:
                continue
            wanted = versions[version]
            if kind.endswith("List") or (wanted is not None and kind not in wanted):
                continue
            kinds[f"{group}/{version}/{kind}"] = name
    return kinds


def state_key_defaults(chosen):
    def visit(node):
        merge_key = node.get("x-kubernetes-patch-merge-key")
        for key in node.get("x-kubernetes-list-map-keys", [merge_key] if merge_key else []):
            item = node["items"].get("$ref")
            field = chosen[item]["properties"][key]
            if (item, key) in KEY_DEFAULTS:
                field["default"] = KEY_DEFAULTS[item, key]
            elif key in chosen[item].get("required", []) and field.get("type") in ZERO:
                field["default"] = ZERO[field["type"]]
        for child in node.get("properties", {}).values():
            visit(child)

    for definition in list(chosen.values()):
        visit(definition)


def state_encoding(chosen, types):
    """Says of each struct how Go writes fields that hold their zero value."""
    for name, definition in chosen.items():
        if "properties" not in definition:
            continue
        omitted, written = types.encoding(name)
        omitted = [field for field in omitted if (name, field) not in ASKED_EMPTY]
        if omitted:
            definition["omit-zero"] = omitted
        if written:
            definition["write-zero"] = written


def main():
    package = pathlib.Path(sys.argv[1])
    types = gotypes.Types(*sys.argv[2:5])
    here = pathlib.Path(__file__).resolve().parent
    output = pathlib.Path(sys.argv[5]) if len(sys.argv) > 5 else here / "builtin-schemas.json.gz"
    source = next(package.rglob(f"{RELEASE}-local/_definitions.json"))
    definitions = json.loads(source.read_text())["$defs"]

    kinds = served_kinds(definitions)
    chosen, todo = {}, sorted(kinds.values())
    while todo:
        name = todo.pop()
        if name in chosen:
            continue
        chosen[name] = SPECIAL[name] if name in SPECIAL else slim(definitions[name])
        for definition, field in ATOMS:
            if definition == name:
                chosen[name]["properties"][field] = {}
        todo.extend(references(chosen[name]))
    state_key_defaults(chosen)
    state_encoding(chosen, types)

    text = json.dumps({"release": RELEASE, "kinds": kinds, "definitions": chosen}, sort_keys=True,
                      separators=(",", ":"))
    output.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(kinds)} kinds, {len(chosen)} definitions, {len(text)} bytes, {output.stat().st_size} compressed")


if __name__ == "__main__":
    main()
