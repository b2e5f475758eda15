"""Run the endpoint picker: `python -m lab.stand_ins.endpoint_picker --pool-name POOL …`.

Exit status: 0 after SIGTERM or SIGINT, 1 for a refused configuration or no way to Kubernetes, 2 for a command line that
does not parse.
"""

import asyncio
import logging
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import aiohttp
import grpc

from lab.stand_ins import json_log
from lab.stand_ins.access_review import RecentVerdicts, judge
from lab.stand_ins.endpoint_picker import config as configs
from lab.stand_ins.endpoint_picker import flags as command_line
from lab.stand_ins.endpoint_picker import metrics_server
from lab.stand_ins.endpoint_picker.datastore import Datastore, Endpoint
from lab.stand_ins.endpoint_picker.dialect import ENVIRONMENT_VARIABLE, Dialect, UnknownVersionError, dialect
from lab.stand_ins.endpoint_picker.director import Director
from lab.stand_ins.endpoint_picker.ext_proc import ExternalProcessor
from lab.stand_ins.endpoint_picker.health import Health
from lab.stand_ins.endpoint_picker.inflight import Accounting
from lab.stand_ins.endpoint_picker.metrics import Metrics
from lab.stand_ins.endpoint_picker.pod_metrics import PodMetricsPoller
from lab.stand_ins.endpoint_picker.prefix_index import PrefixIndex
from lab.stand_ins.endpoint_picker.scheduler import Scheduler
from lab.stand_ins.endpoint_picker.strict import ConfigError
from lab.stand_ins.endpoint_picker.watch import feed
from lab.stand_ins.go_flags import FlagError, HelpRequestedError
from lab.stand_ins.in_cluster import CREDENTIALS, ApiServer, NotInAPodError
from lab.stand_ins.serving import serving, stop_signal
from lab.stand_ins.signing import serving_pair

_LOG = logging.getLogger("epp")
_DEFAULT_VERSION = "0.11"
# The real program's command line has no such flag; a test's service account is not where a pod's is.
SERVICE_ACCOUNT_VARIABLE = "LAB_SERVICE_ACCOUNT"
_VERBOSE = 4  # `-v` from which on the picker tells of every request


def main(arguments: list[str]) -> int:
    """Run until a signal ends it; return the exit status."""
    try:
        flags = command_line.parse(arguments, os.environ)
        speaks = dialect(os.environ.get(ENVIRONMENT_VARIABLE, _DEFAULT_VERSION))
        text = Path(flags.config_file).read_text() if flags.config_file else flags.config_text
        config = configs.load(text, speaks)
        api = ApiServer.from_environment(Path(os.environ.get(SERVICE_ACCOUNT_VARIABLE, CREDENTIALS)))
    except HelpRequestedError as usage:
        print(usage)
        return 0
    except FlagError as error:
        print(error, file=sys.stderr)
        return error.status
    except (UnknownVersionError, ConfigError, NotInAPodError, OSError, UnicodeDecodeError) as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return 1
    json_log.set_up(json_lines=flags.json_logs)
    _LOG.setLevel(logging.DEBUG if flags.verbosity >= _VERBOSE else logging.INFO)
    for warning in config.warnings:
        _LOG.warning("%s", warning)
    asyncio.run(_run(flags, config, speaks, api))
    return 0


async def _run(flags: command_line.Flags, config: configs.PickerConfig, speaks: Dialect, api: ApiServer) -> None:
    """Wire the parts, serve until a signal comes, then drain."""
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        accounting, index = Accounting(prunes_departed_series=speaks.prunes_departed_series), PrefixIndex()

        def departed(endpoint: Endpoint) -> None:
            _LOG.info("endpoint %s left", endpoint.name)
            director.forget(endpoint)
            poller.forget(endpoint.name)

        datastore = Datastore(departed)
        poller = PodMetricsPoller(
            session,
            datastore.endpoints,
            interval=flags.refresh_metrics_interval,
            staleness=flags.metrics_staleness_threshold,
            clock=time.monotonic,
        )
        metrics = Metrics(
            speaks,
            accounting,
            config.inflight_producer.name if config.inflight_producer else None,
            lambda: [(endpoint.name, poller.latest(endpoint.name).waiting) for endpoint in datastore.endpoints()],
            flags.pool_name,
        )
        random = Random()  # noqa: S311 - breaks ties
        director = Director(
            config=config,
            scheduler=Scheduler(config, random),
            datastore=datastore,
            accounting=accounting,
            index=index,
            metrics=metrics,
            pod_metrics=poller.latest,
            clock=time.monotonic,
            random=random,
        )
        verdicts = RecentVerdicts(lambda token: judge(api, token, metrics_server.ACCESS))
        answers = metrics_server.application(metrics.render, verdicts if flags.metrics_endpoint_auth else None)
        await stack.enter_async_context(serving(answers, flags.metrics_port))
        feed(datastore, api, flags.pool_name, flags.pool_namespace)
        refreshing = _refresh(metrics, poller, flags.refresh_prometheus_metrics_interval)
        background = [asyncio.create_task(work) for work in (poller.run(), refreshing)]
        for task in background:
            stack.push_async_callback(_cancel, task)
        health = Health(lambda: datastore.synced, leader_election=flags.ha_enable_leader_election)
        servers = await _serve(flags, health, ExternalProcessor(director, time.monotonic))
        _LOG.info("serving pool %s/%s, router dialect %s", flags.pool_namespace, flags.pool_name, speaks.version)
        await asyncio.wait({asyncio.create_task(stop.wait()), *background}, return_when=asyncio.FIRST_COMPLETED)
        for task in background:
            if task.done():
                task.result()  # ended by itself, which it does by an error only: this raises it
        _LOG.info("leaving; open exchanges have %s s", flags.drain_timeout)
        health.leave()
        await asyncio.gather(*(server.stop(flags.drain_timeout) for server in servers))


async def _serve(
    flags: command_line.Flags, health: Health, processor: ExternalProcessor
) -> tuple[grpc.aio.Server, grpc.aio.Server]:
    """Start the ext_proc server (first) and the health server."""
    options: list[tuple[str, int]] = [("grpc.so_reuseport", 0)]
    if flags.grpc_max_recv_msg_size:
        options.append(("grpc.max_receive_message_length", flags.grpc_max_recv_msg_size))
    if flags.grpc_max_send_msg_size:
        options.append(("grpc.max_send_message_length", flags.grpc_max_send_msg_size))
    main_server = grpc.aio.server(handlers=(processor.handler(), health.handler()), options=options)
    if flags.secure_serving:
        pair = serving_pair(flags.cert_path, "endpoint-picker")
        credentials = grpc.ssl_server_credentials([(pair.key.encode(), pair.certificate.encode())])
        main_server.add_secure_port(f"[::]:{flags.grpc_port}", credentials)
    else:
        main_server.add_insecure_port(f"[::]:{flags.grpc_port}")
    health_server = grpc.aio.server(handlers=(health.handler(),), options=[("grpc.so_reuseport", 0)])
    health_server.add_insecure_port(f"[::]:{flags.grpc_health_port}")
    await main_server.start()
    await health_server.start()
    return main_server, health_server


async def _refresh(metrics: Metrics, poller: PodMetricsPoller, interval: float) -> None:
    """Keep the pool's gauges current until cancelled."""
    while True:
        metrics.refresh_pool(poller.fresh())
        await asyncio.sleep(interval)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
