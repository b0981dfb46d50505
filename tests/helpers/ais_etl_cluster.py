#!/usr/bin/env python3
"""A real AIStore cluster with working ETL on one Linux machine, without Kubernetes.

An `aisnode` that was built with `-tags etl` creates its ETL pods through the Kubernetes API. This tool gives it a small
stand-in for that API on loopback, which runs every pod as a local process.

  ais_etl_cluster.py start --dir D --aisnode AISNODE [options]   prints AIS_ENDPOINT=http://127.0.0.1:PORT
  ais_etl_cluster.py stop  --dir D                               ends everything that `start` began
  ais_etl_cluster.py exec  --dir D COMMAND...                    runs COMMAND in the cluster's network

To build AISNODE: go mod init scratch; go get github.com/NVIDIA/aistore@v1.5.0; a tools.go that imports (_) its
cmd/aisnode; go mod tidy -e; go build -tags etl -o aisnode github.com/NVIDIA/aistore/cmd/aisnode
It needs openssl, and unshare and mount (util-linux) unless --host-path; nsenter for `exec`.

In a real cluster each pod has its own address, and listens on the containerPort (8000). Here all share one address, so
each pod gets a port of its own, in PORT; "$(PORT)" in command and args is replaced, as Kubernetes does with $(VAR).
Images are not pulled: `command` runs with --python's directory first in PATH; a spec without command needs --image.
Pods run as this user without isolation. Init containers, liveness probes, resource limits and metrics are not provided,
and a pod that ends is not started again. A target that ends is, unless there is a file D/t<number>/away; and one that
answers nothing about ETLs any more is ended first.

aisnode reads its service account in /var/run/secrets/kubernetes.io/serviceaccount. By default only a private mount
namespace has it (unshare -m; as non-root -r -m); with --host-path it is written there, and removed by `stop`.
Everything runs in a network namespace of its own (lo only), since aisnode's public listener binds all interfaces and,
with Kubernetes, it refuses 127.0.0.1 for its intra-cluster nets: nothing is reachable from outside, and clients run
under `exec`. --host-net uses this host's network instead (--intra-ip).

Files in D: ais.json, <node>/{local.json,log,out}, supervisor.out (API requests), pods/<name>.<n>.log (pod output).
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SA = "/var/run/secrets/kubernetes.io/serviceaccount"
NS, NODE, HOST, PRIVATE_IP = "default", "standin-node", "127.0.0.1", "10.255.255.1"
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy says
BOOT = (
    "import base64,os,pickle; c=pickle.loads(base64.b64decode(os.environ['ETL_CLASS_PAYLOAD']));"
    "s=c(); s.port=int(os.environ['PORT']); s.start()"
)
# client-go sends built-in kinds as protobuf (and accepts JSON answers): the fields that matter here
WIRE = {
    "Pod": {1: "metadata Meta", 2: "spec PodSpec"},
    "Service": {1: "metadata Meta", 2: "spec ServiceSpec"},
    "Meta": {1: "name"},
    "ServiceSpec": {1: "ports* Port", 4: "type"},
    "Port": {1: "name", 2: "protocol", 3: "port"},
    "PodSpec": {2: "containers* Container"},
    "Env": {1: "name", 2: "value"},
    "Probe": {1: "handler Handler"},
    "Handler": {2: "httpGet Get"},
    "Get": {1: "path"},
    "Unknown": {1: "type Type", 2: "raw Raw"},
    "Type": {2: "kind"},
    "Container": {1: "name", 2: "image", 3: "command*", 4: "args*", 7: "env* Env", 11: "readinessProbe Probe"},
}


def now():
    """The time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def decode(kind, data):
    """One protobuf message as a dict, by WIRE; fields that it does not name are skipped."""
    obj, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        name, _, sub = WIRE[kind].get(tag >> 3, "").partition(" ")
        value = varint() if tag & 7 in (0, 2) else {1: 8, 5: 4}[tag & 7]
        if tag & 7:
            value, at = data[at : at + value], at + value
            value = value if not name or sub == "Raw" else decode(sub, value) if sub else value.decode()
        if name.endswith("*"):
            obj.setdefault(name[:-1], []).append(value)
        elif name:
            obj[name] = value
    return obj


def started_at(pid):
    """The start time of a process (to tell it from a later one with the same id); None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        return None


def end(pid, since, wait):
    """TERM to the process group that `pid` leads, KILL after `wait` seconds."""
    for sig, patience in ((signal.SIGTERM, wait), (signal.SIGKILL, 2)):
        if since is None or started_at(pid) != since:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, sig)
        limit = time.monotonic() + patience
        while started_at(pid) == since and time.monotonic() < limit:
            time.sleep(0.05)


def spawn(d, cmd, out, env=None):
    """A process in a session of its own, noted so that `stop` can end it even when the supervisor is gone."""
    with open(os.path.join(d, out), "ab") as f:
        proc = subprocess.Popen(
            cmd, env=env, cwd=d, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True
        )
    with open(os.path.join(d, "pids"), "a") as f:
        f.write(f"{proc.pid} {started_at(proc.pid)}\n")
    return proc


def write(d, name, what):
    with open(os.path.join(d, name), "w") as f:
        f.write(what if isinstance(what, str) else json.dumps(what, indent=1))


def healthy(port, path):
    try:
        with LOCAL.open(f"http://{HOST}:{port}{path}", timeout=2) as r:
            return r.status < 300
    except OSError:
        return False


def end_stuck_targets(args, nodes, done):
    """Kill targets that answer nothing about ETLs, as an administrator would, for they pass as healthy.

    When a rebalance aborts an ETL that is just being started, as after a target was killed, aisnode 1.5.0 may keep half
    of it. Each list of ETLs then ends in a panic ("EOF") and leaves a lock behind, until the target is restarted.
    """
    stuck = re.compile(r"failed to call t\[target(\d+)\].*(EOF|deadline exceeded)")
    before = None
    while not done.wait(1):
        named = None
        try:
            LOCAL.open(f"http://{HOST}:{args.proxy_port}/v1/etl", timeout=60).close()
        except urllib.error.HTTPError as error:
            named = stuck.search(error.read().decode("utf-8", "replace"))
        except OSError:
            pass
        if named and before and named[1] == before[1]:
            nodes[(int(named[1]) - args.proxy_port) // 10].kill()
            named = None
        before = named


class Kube:
    """The objects of the stand-in API server, and the processes behind its pods."""

    def __init__(self, args):
        self.args, self.lock, self.rv, self.runs = args, threading.RLock(), 0, 0
        self.objs, self.ports, self.procs, self.logs, self.watchers = {"pods": {}, "services": {}}, {}, {}, {}, []

    def changed(self, kind, event, obj):
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        for name, queue in self.watchers if kind == "pods" else ():
            if name in ("", obj["metadata"]["name"]):
                queue.append(json.dumps({"type": event, "object": obj}))

    def port_of(self, name):
        """A pod and its NodePort service have the same name, hence the same port."""
        with self.lock:
            unused = (p for p in range(self.args.proxy_port + 100, 65536) if p not in self.ports.values())
            return self.ports[name] if name in self.ports else self.ports.setdefault(name, next(unused))

    def create(self, kind, obj):
        meta = obj["metadata"]
        with self.lock:
            if meta["name"] in self.objs[kind]:
                return None
            self.runs += 1
            meta.update(namespace=NS, uid=f"uid-{self.runs}", creationTimestamp=now())
            obj.update(apiVersion="v1", kind="Pod" if kind == "pods" else "Service")
            for port in obj["spec"].get("ports", ()):
                port["nodePort"] = self.port_of(meta["name"])
            self.objs[kind][meta["name"]] = obj
            self.changed(kind, "ADDED", obj)
        if kind == "pods" and "status" not in obj:
            self.set_state(obj, "Pending", {"waiting": {"reason": "ContainerCreating"}})
            threading.Thread(target=self.run_pod, args=(obj, self.runs), daemon=True).start()
        return obj

    def delete(self, kind, name):
        with self.lock:
            obj = self.objs[kind].pop(name, None)
            proc = self.procs.pop(name, None) if kind == "pods" else None
        if proc:
            end(proc.pid, started_at(proc.pid), 2)
        with self.lock:
            if not any(name in objs for objs in self.objs.values()):
                self.ports.pop(name, None)
            if obj:
                self.changed(kind, "DELETED", obj)
        return obj

    def set_state(self, pod, phase, state, ready=False):
        ctr = pod["spec"]["containers"][0]["name"]
        with self.lock:
            if self.objs["pods"].get(pod["metadata"]["name"]) is pod:
                pod["status"] = {
                    "phase": phase,
                    "hostIP": HOST,
                    "conditions": [{"type": "Ready", "status": str(ready)}],
                    "containerStatuses": [{"name": ctr, "ready": ready, "restartCount": 0, "state": state}],
                }
                self.changed("pods", "MODIFIED", pod)

    def command(self, ctr, env):
        cmd = ctr.get("command") or shlex.split(self.args.images.get(ctr.get("image"), ""))
        cmd = cmd or [self.args.python, "-c", BOOT] * ("ETL_CLASS_PAYLOAD" in env)
        if not cmd:
            raise OSError(f"stand-in: no command in the spec, and no --image {ctr.get('image')}=COMMAND")
        return [re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), word) for word in cmd + ctr.get("args", [])]

    def run_pod(self, pod, run):
        name, ctr, args, begin = pod["metadata"]["name"], pod["spec"]["containers"][0], self.args, now()
        port, log = self.port_of(name), os.path.join(args.dir, "pods", f"{name}.{run}.log")
        env = {
            "PATH": os.path.dirname(args.python) + os.pathsep + os.environ.get("PATH", os.defpath),
            "HOME": args.dir,
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "HOSTNAME": name,
            **args.pod_envs,
        }
        env.update({e["name"]: e.get("value", "") for e in ctr.get("env", ())}, PORT=str(port))
        try:
            proc, self.logs[name] = spawn(args.dir, self.command(ctr, env), log, env), log
        except OSError as e:
            return self.set_state(
                pod, "Running", {"terminated": {"exitCode": 128, "reason": "StartError", "message": str(e)}}
            )
        with self.lock:
            if self.objs["pods"].get(name) is not pod:  # deleted meanwhile
                return end(proc.pid, started_at(proc.pid), 0)
            self.procs[name] = proc
        self.set_state(pod, "Running", {"running": {"startedAt": begin}})
        probe = ctr.get("readinessProbe", {}).get("handler", {}).get("httpGet")
        while proc.poll() is None and probe and not healthy(port, probe.get("path", "/")):
            time.sleep(0.05)
        if proc.poll() is None:
            self.set_state(pod, "Running", {"running": {"startedAt": begin}}, ready=True)
        code = proc.wait()
        with open(log, "rb") as f:  # terminationMessagePolicy: FallbackToLogsOnError
            tail = f.read()[-2048:].decode(errors="replace") if code else ""
        code = code if code >= 0 else 128 - code  # and restartPolicy Always: the phase stays Running
        why = "Error" if code else "Completed"
        return self.set_state(pod, "Running", {"terminated": {"exitCode": code, "reason": why, "message": tail}})


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, kube = "HTTP/1.1", True, None

    def answer(self, body, code=200, kind="application/json", otherwise=404):
        if body is None:
            code, reason = otherwise, "NotFound" if otherwise == 404 else "AlreadyExists"
            body = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": code,
                "reason": reason,
                "message": self.path,
            }
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.head(code, kind, "Content-Length", str(len(body)))
        self.wfile.write(body)

    def head(self, code, kind, name, value):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header(name, value)
        self.end_headers()

    def route(self):
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        m = re.fullmatch(rf"/api/v1/namespaces/{NS}/(pods|services)(?:/([^/]+))?(/log)?", url.path)
        if not m:
            return self.answer(None)
        kube, (kind, name, log) = self.kube, m.groups()
        if self.command == "POST":
            message = decode("Unknown", body[4:])  # after the magic "k8s\0"
            return self.answer(kube.create(kind, decode(message["type"]["kind"], message["raw"])), 201, otherwise=409)
        if name:
            found = kube.delete(kind, name) if self.command == "DELETE" else kube.objs[kind].get(name)
            if found and log:
                with open(kube.logs.get(name, os.devnull), "rb") as f:
                    return self.answer(f.read(), kind="text/plain")
            return self.answer(found)
        only = dict(urllib.parse.parse_qsl(url.query)).get("fieldSelector", "").partition("metadata.name=")[2]
        if "watch=" in url.query:
            return self.watch(only)
        items = [o for n, o in list(kube.objs[kind].items()) if only in ("", n)]
        return self.answer({"kind": "PodList" if kind == "pods" else "ServiceList", "apiVersion": "v1", "items": items})

    do_GET = do_POST = do_DELETE = route

    def watch(self, only):
        """Events until the client closes. (aisnode spins when a watch ends by itself, so this one never does.)"""
        kube, self.close_connection = self.kube, True
        with kube.lock:
            queue = [
                json.dumps({"type": "ADDED", "object": o}) for n, o in kube.objs["pods"].items() if only in ("", n)
            ]
            kube.watchers.append((only, queue))
        self.head(200, "application/json", "Transfer-Encoding", "chunked")
        with contextlib.suppress(OSError):
            while not select.select([self.connection], [], [], 0.1)[0]:
                while queue:
                    line = queue.pop(0).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        with kube.lock:
            kube.watchers = [w for w in kube.watchers if w[1] is not queue]


def enter(args):
    """In the new namespaces: the service account at its fixed path, and an address that is not loopback."""
    if not args.host_path and not args.no_k8s:
        run, keep = os.path.realpath("/var/run"), os.path.join(args.dir, "run.host")
        os.makedirs(keep)
        subprocess.run(["mount", "--rbind", run, keep], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", run], check=True)
        for name in set(os.listdir(keep)) - {"secrets"}:
            os.symlink(os.path.join(keep, name), os.path.join(run, name))
    if not args.no_k8s:
        shutil.copytree(os.path.join(args.dir, "sa"), SA)  # fails when it exists
        if args.host_path:
            write(args.dir, "host-path", SA)
    if args.private_net:
        with socket.socket() as s:
            for name, ip in ((b"lo", HOST), (b"lo:1", PRIVATE_IP)):  # SIOCSIFADDR; SIOCSIFFLAGS up, running
                fcntl.ioctl(s, 0x8916, struct.pack("16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(ip)))
                fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", name, 0x41))


def small_cluster(url):
    """What the configuration of every small cluster has, given the URL of its proxy."""
    return {
        "auth": {},
        "proxy": {"primary_url": url, "original_url": url, "discovery_url": ""},
        "net": {"l4": {"proto": "tcp"}, "http": {"use_https": False}},
        "memsys": {"min_free": "256mb"},
        "space": {"cleanupwm": 90, "lowwm": 95, "highwm": 97, "out_of_space": 99},
        "timeout": {
            "cplane_operation": "2s",
            "max_keepalive": "5s",
            "max_host_busy": "20s",
            "startup_time": "30s",
            "send_file_time": "5m",
        },
    }


def configure(args):
    """The configuration of proxy and targets, and the certificate of the stand-in."""
    base, d = args.proxy_port, args.dir
    url, nodes = f"http://{HOST}:{base}", ["p"] + [f"t{i + 1}" for i in range(args.targets)]
    for sub in ["pods", "sa"] + [f"{node}/{sub}" for node in nodes for sub in ("conf", "log")]:
        os.makedirs(os.path.join(d, sub))
    write(d, "ais.json", {**small_cluster(url), "backend": {}, "features": str(args.features)})
    for i, node in enumerate(nodes):
        port = base + 10 * i
        write(
            d,
            f"{node}/local.json",
            {
                "confdir": f"{d}/{node}/conf",
                "log_dir": f"{d}/{node}/log",
                "fspaths": {},
                "test_fspaths": {"root": f"{d}/data", "count": 1, "instance": i},
                "host_net": {
                    "hostname": HOST,
                    "hostname_intra_control": args.intra_ip,
                    "hostname_intra_data": args.intra_ip,
                    "port": str(port),
                    "port_intra_control": str(port + 1),
                    "port_intra_data": str(port + 2),
                },
            },
        )
    write(d, "sa/token", "stand-in")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=stand-in",
            "-addext",
            f"subjectAltName=IP:{HOST}",
            "-keyout",
            f"{d}/key.pem",
            "-out",
            f"{d}/sa/ca.crt",
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def pod_of(i):
    return f"ais-target-{i}" if i else "ais-proxy-0"


def pod_spec(d):
    """That of a node; a target looks itself up and copies its volumes."""
    return {
        "containers": [{"name": "ais", "image": "aisnode", "volumeMounts": [{"name": "data", "mountPath": d}]}],
        "volumes": [{"name": "data", "hostPath": {"path": d}}],
    }


def start_node(args, i, env):
    """Start the proxy, which is node 0, or a target."""
    d, node, role = args.dir, f"t{i}" if i else "p", "target" if i else "proxy"
    command = [args.aisnode, f"-config={d}/ais.json", f"-local_config={d}/{node}/local.json", f"-role={role}"]
    command += [f"-daemon_id={role}{args.proxy_port + 10 * i}"]
    command += [] if i else [f"-ntargets={args.targets}", "-skip_startup"]
    return spawn(d, command, f"{node}/out", {**env, "MY_POD": pod_of(i), "HOSTNAME": pod_of(i)})


def serve(args):
    """The supervisor: the stand-in API, then proxy and targets; ends them all on TERM."""
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    d, base, nodes, waiting = args.dir, args.proxy_port, [], []
    enter(args)
    kube = Handler.kube = Kube(args)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KUBERNETES_", "AIS_", "MY_"))}
    if not args.no_k8s:
        api = ThreadingHTTPServer((HOST, base + 9), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(f"{d}/sa/ca.crt", f"{d}/key.pem")
        api.socket = tls.wrap_socket(api.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=api.serve_forever, daemon=True).start()
        env.update(KUBERNETES_SERVICE_HOST=HOST, KUBERNETES_SERVICE_PORT=str(base + 9), MY_NODE=NODE, K8S_NS=NS)
    for i in range(args.targets + 1):
        kube.create(
            "pods",
            {"metadata": {"name": pod_of(i)}, "spec": pod_spec(d), "status": {"phase": "Running", "hostIP": HOST}},
        )
        nodes.append(start_node(args, i, env))
        waiting.append((base + 10 * i, "/v1/health?readiness=true"))
        while i == 0 and nodes[0].poll() is None and not healthy(base, "/v1/health") and not done.wait(0.1):
            pass
    while not done.wait(0.2):
        if any(p.poll() is not None for p in (nodes if waiting else nodes[:1])):
            break
        if waiting and healthy(*waiting[0]) and waiting.pop(0) and not waiting:
            write(d, "ready", now())
            if not args.no_k8s:
                threading.Thread(target=end_stuck_targets, args=(args, nodes, done), daemon=True).start()
        for i in range(1, len(nodes)):  # as Kubernetes does
            if nodes[i].poll() is not None and not os.path.exists(f"{d}/t{i}/away"):
                nodes[i] = start_node(args, i, env)
    for name in list(kube.procs):
        kube.delete("pods", name)
    for proc in nodes[1:] + nodes[:1]:
        end(proc.pid, started_at(proc.pid), 8)


def stop(d):
    if os.path.exists(os.path.join(d, "host-path")):
        os.remove(os.path.join(d, "host-path"))
        shutil.rmtree(SA, ignore_errors=True)
        with contextlib.suppress(OSError):  # and its parents, when empty
            os.removedirs(os.path.dirname(SA))
    if os.path.exists(os.path.join(d, "pids")):
        with open(os.path.join(d, "pids")) as f:
            for i, line in enumerate(f.read().splitlines()):  # first the supervisor; it ends the others
                end(int(line.split()[0]), line.split()[1], 5 if i else 30)
        os.remove(os.path.join(d, "pids"))


def start(args):
    began, d = time.monotonic(), args.dir
    ours = os.path.exists(os.path.join(d, "ais.json")) and not os.path.ismount(os.path.join(d, "run.host"))
    if os.path.isdir(d) and os.listdir(d) and not ours:
        sys.exit(f"{d} is neither empty nor a directory of this tool (or its run.host is still mounted)")
    stop(d)
    shutil.rmtree(d, ignore_errors=True)  # always a fresh cluster
    if not (args.private_net or args.intra_ip or args.no_k8s):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("192.0.2.1", 9))  # sends nothing, asks for the source address; no route: give --intra-ip
            args.intra_ip = s.getsockname()[0]
    args.intra_ip = PRIVATE_IP if args.private_net else args.intra_ip or HOST
    configure(args)
    spaces = [o for o, on in (("-m", not args.no_k8s and not args.host_path), ("-n", args.private_net)) if on]
    spaces = ["unshare"] * bool(spaces) + ["-r"] * bool(spaces and os.geteuid()) + spaces
    write(d, "args.json", vars(args))
    proc = spawn(d, [*spaces, sys.executable, os.path.abspath(__file__), "_serve", "--dir", d], "supervisor.out")
    while not os.path.exists(os.path.join(d, "ready")):
        if proc.poll() is not None or time.monotonic() - began > 200:
            stop(d)
            sys.exit(f"no cluster after {time.monotonic() - began:.0f} s; see supervisor.out, p/out and t1/out in {d}")
        time.sleep(0.1)
    print(f"AIS_ENDPOINT=http://{HOST}:{args.proxy_port}")
    print(
        f"started in {time.monotonic() - began:.1f} s, {args.targets} target(s), supervisor {proc.pid}", file=sys.stderr
    )


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=("start", "stop", "exec", "_serve"))
    ap.add_argument("--dir", required=True, type=os.path.abspath)
    ap.add_argument("--aisnode", default=os.environ.get("AISNODE", "aisnode"), help="the binary (default: $AISNODE)")
    ap.add_argument("--targets", type=int, default=2)
    ap.add_argument(
        "--proxy-port", type=int, default=21100, help="P; targets P+10, P+20.., API P+9, pods P+100.. (default 21100)"
    )
    ap.add_argument(
        "--python", default=sys.executable, type=os.path.abspath, help="the interpreter that pods find as `python`"
    )
    ap.add_argument("--pod-env", action="append", default=[], metavar="K=V", help="more environment for every pod")
    ap.add_argument(
        "--image", action="append", default=[], metavar="IMAGE=COMMAND", help="what a spec without command runs"
    )
    ap.add_argument("--features", type=int, default=0, help="cluster feature flags (128: no etl_fqn, bodies are sent)")
    ap.add_argument("--intra-ip", default="", help="a local IPv4 address, not loopback")
    ap.add_argument(
        "--host-net", dest="private_net", action="store_false", help="use this host's network, not a namespace"
    )
    ap.add_argument("--host-path", action="store_true", help="write the service account to its real path")
    ap.add_argument("--no-k8s", action="store_true", help="plain cluster: to see what ETL calls answer there")
    args, rest = ap.parse_known_args() if "exec" in sys.argv[1:2] else (ap.parse_args(), [])
    if args.what == "exec":
        with open(os.path.join(args.dir, "pids")) as f:
            pid = f.readline().split()[0]
        os.execvp(
            "nsenter", ["nsenter", "-t", pid, "-n", *["-U", "--preserve-credentials"] * bool(os.geteuid()), "--", *rest]
        )
    if args.what == "_serve":
        with open(os.path.join(args.dir, "args.json")) as f:
            return serve(argparse.Namespace(**json.load(f)))
    if args.what == "stop":
        return stop(args.dir)
    args.aisnode = os.path.abspath(shutil.which(args.aisnode) or sys.exit(f"no such program: {args.aisnode}"))
    args.images, args.pod_envs = (dict(x.split("=", 1) for x in xs) for xs in (args.image, args.pod_env))
    return start(args)


if __name__ == "__main__":
    main()
