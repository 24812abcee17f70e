"""The recording and alerting rules, by promtool: where each fires, where it must not, and what it says."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.manifests.promtool import RULES, RUNBOOKS, Series, Test, check, promtool
from tests.places import ROOT

ALERTS = {rule["alert"]: rule for group in RULES for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"]: rule for group in RULES for rule in group["rules"] if "record" in rule}


@dataclass(frozen=True)
class Case:
    alert: str
    series: Series
    at: str
    labels: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    """What the alert says; empty: it must not fire."""


ACCURACY = "numazones_prediction_accuracy_total"
REJECTIONS = "numazones_owner_rejections_total"
WEB = f"{REJECTIONS}{{namespace='shop',owner_kind='Deployment',owner='web',reason='TopologyAffinityError'}}"
ANSWERED = "numazones_extender_request_duration_seconds"
MISALIGNED = "numazones_owner_misaligned_pods{namespace='shop'"
EVICTED = "numazones_rebalance_pods_evicted_total"
RECOMMENDATIONS = "numazones_rebalance_recommendations_total"
DISTURBED = "numazones_exclusive_cpu_interrupts_per_second{node='a',numa_node='0',cpu='3'"
HELD_BY = {"namespace": "shop", "pod": "web-0", "container": "main"}


def cpu_times(kind: str, numa: str = "0", **modes: str) -> Series:
    """Return the seconds of a kind of CPU by mode, of one NUMA node."""
    name = f"numazones_numa_cpu_seconds_total{{node='a',numa_node='{numa}',kind='{kind}'"
    return {f"{name},mode='{mode}'}}": values for mode, values in modes.items()}


def held(*, busy: str, held: str) -> Series:
    """Return what a container with eight exclusive CPUs has used."""
    labels = "{" + ",".join(f"{key}='{value}'" for key, value in HELD_BY.items()) + "}"
    return {
        f"numazones_container_exclusive_cpus{labels}": "8x10200",
        f"numazones_container_exclusive_cpu_seconds_total{labels}": held,
        f"numazones_container_exclusive_cpu_busy_seconds_total{labels}": busy,
    }


OUTCOMES = [
    Case(
        "NumazonesNoLeader",
        {"numazones_operator_leader{pod='a'}": "0x20", "numazones_operator_leader{pod='b'}": "1 1 0x20"},
        "10m",
        {},
        "No replica of numazones-operator is the leader, so predictions are not updated.",
    ),
    Case(
        "NumazonesNoLeader",
        {"up": "1x9"},
        "5m",
        {},
        "No replica of numazones-operator is the leader, so predictions are not updated.",
    ),
    Case(
        "NumazonesNoLeader",
        {"numazones_operator_leader{pod='a'}": "0x9", "numazones_operator_leader{pod='b'}": "1x9"},
        "5m",
    ),
    Case(
        "NumazonesSeveralLeaders",
        {"numazones_operator_leader{pod='a'}": "1x9", "numazones_operator_leader{pod='b'}": "1x9"},
        "5m",
        {},
        "2 replicas of numazones-operator are leaders at the same time.",
    ),
    Case(  # one in each of two clusters
        "NumazonesSeveralLeaders",
        {"numazones_operator_leader{cluster='a'}": "1x9", "numazones_operator_leader{cluster='b'}": "1x9"},
        "5m",
    ),
    Case(
        "NumazonesStaleNodes",
        {
            "numazones_stale_nodes{reason='NoZones'}": "3x20",
            "numazones_stale_nodes{reason='NoLease'}": "0x20",
        },
        "15m",
        {"reason": "NoZones"},
        "Some nodes are stale (NoZones): 3 now. Predictions for them are Unknown.",
    ),
    Case("NumazonesStaleNodes", {"numazones_stale_nodes{reason='NoZones'}": "3x8 0x12"}, "15m"),
    Case(
        "NumazonesPredictionsLate",
        {
            "numazones_operator_lag_seconds_bucket{le='5.0'}": "0+90x30",
            "numazones_operator_lag_seconds_bucket{le='10.0'}": "0+100x30",
            "numazones_operator_lag_seconds_bucket{le='+Inf'}": "0+100x30",
        },
        "25m",
        {},
        "More than 1 % of predictions are published more than 5 s after the change that caused them.",
    ),
    Case(
        "NumazonesPredictionsLate",
        {
            "numazones_operator_lag_seconds_bucket{le='1.0'}": "0+100x30",
            "numazones_operator_lag_seconds_bucket{le='5.0'}": "0+100x30",
            "numazones_operator_lag_seconds_bucket{le='+Inf'}": "0+100x30",
        },
        "25m",
    ),
    Case(  # nothing is predicted at all
        "NumazonesPredictionsLate",
        {
            "numazones_operator_lag_seconds_bucket{le='5.0'}": "0x30",
            "numazones_operator_lag_seconds_bucket{le='+Inf'}": "0x30",
        },
        "25m",
    ),
    Case(
        "NumazonesWatchesFail",
        {"numazones_operator_watch_restarts_total{resource='pods',reason='rejected'}": "0+6x30"},
        "25m",
        {"resource": "pods"},
        "The operator cannot watch pods.",
    ),
    Case(
        "NumazonesWatchesFail",
        {"numazones_operator_watch_restarts_total{resource='pods',reason='ended'}": "0+6x30"},
        "25m",
    ),
    Case(
        "NumazonesObjectErrors",
        {"numazones_operator_object_errors_total{kind='Pod',error='ValueError'}": "1x30"},
        "25m",
        {"kind": "Pod"},
        "The operator cannot read or evaluate some objects of kind Pod, so it ignores them or treats them "
        "as Unknown.",
    ),
    Case(
        "NumazonesObjectErrors",
        {"numazones_operator_object_errors_total{kind='Pod',error='ValueError'}": "1x200"},
        "150m",
    ),
    Case(
        "NumazonesWritesFail",
        {"numazones_operator_api_writes_total{resource='events',result='403'}": "0+1x30"},
        "25m",
        {"resource": "events"},
        "100% of the operator's writes to events fail.",
    ),
    Case(
        "NumazonesWritesFail",
        {
            "numazones_operator_api_writes_total{resource='events',result='ok'}": "0+99x30",
            "numazones_operator_api_writes_total{resource='events',result='409'}": "0+1x30",
        },
        "25m",
    ),
    Case(
        "NumazonesModelMisses",
        {f"{ACCURACY}{{model='kubelet',accuracy='model'}}": "0x9 1x9"},
        "15m",
        {"model": "kubelet"},
        "Predictions were wrong although all inputs were known: 1 in the last hour. The placement model has "
        "a bug.",
    ),
    Case(
        "NumazonesModelMisses",
        {
            f"{ACCURACY}{{model='kubelet',accuracy='model'}}": "4x20",
            f"{ACCURACY}{{model='kubelet',accuracy='race'}}": "0+1x20",
        },
        "15m",
    ),
    Case(  # one kind of miss alone, and nothing that came true: the other series do not exist
        "NumazonesPredictionsMiss",
        {f"{ACCURACY}{{model='kubelet',accuracy='stale'}}": "0+1x90"},
        "80m",
        {"model": "kubelet"},
        "100% of predictions are wrong.",
    ),
    Case(
        "NumazonesPredictionsMiss",
        {
            f"{ACCURACY}{{model='koordinator',accuracy='right'}}": "0+9x90",
            f"{ACCURACY}{{model='koordinator',accuracy='race'}}": "0+1x90",
        },
        "80m",
        {"model": "koordinator"},
        "10% of predictions are wrong.",
    ),
    Case(  # few, by race
        "NumazonesPredictionsMiss",
        {
            f"{ACCURACY}{{model='kubelet',accuracy='right'}}": "0+99x90",
            f"{ACCURACY}{{model='kubelet',accuracy='race'}}": "0+1x90",
        },
        "80m",
    ),
    Case(  # no predictions, or too few to speak of a share
        "NumazonesPredictionsMiss",
        {
            f"{ACCURACY}{{model='kubelet',accuracy='unknown'}}": "0+9x90",
            f"{ACCURACY}{{model='koordinator',accuracy='race'}}": "0x60 1x30",
        },
        "80m",
    ),
    Case(
        "NumazonesKubeletDisagrees",
        {
            "cpu_manager_numa_allocation_spread{node='a',numa_node='0'}": "8x30",
            "kubelet_cpu_manager_allocation_per_numa{node='a',numa_node='0'}": "4x30",
        },
        "20m",
        {"node": "a", "numa_node": "0"},
        "On NUMA node 0 of a, numazones and the kubelet count different numbers of exclusive CPUs "
        "(difference 4).",
    ),
    Case(  # the same; empty, where the kubelet keeps its old figure; and not scraped at all
        "NumazonesKubeletDisagrees",
        {
            "cpu_manager_numa_allocation_spread{node='a',numa_node='0'}": "8x30",
            "kubelet_cpu_manager_allocation_per_numa{node='a',numa_node='0'}": "8x30",
            "cpu_manager_numa_allocation_spread{node='a',numa_node='1'}": "0x30",
            "kubelet_cpu_manager_allocation_per_numa{node='a',numa_node='1'}": "4x30",
            "cpu_manager_numa_allocation_spread{node='b',numa_node='0'}": "2x30",
        },
        "20m",
    ),
    Case(
        "NumazonesPodsBlocked",
        {"numazones_blocked_pods{source='Kubelet',reason='TopologyAffinityError'}": "2x30"},
        "20m",
        {"reason": "TopologyAffinityError"},
        "Some pods do not fit on any node (TopologyAffinityError): 2 now.",
    ),
    Case(
        "NumazonesPodsBlocked",
        {"numazones_blocked_pods{source='Scheduler',reason='Insufficient cpu'}": "2x30"},
        "20m",
    ),
    Case(
        "NumazonesRejectionLoop",
        {WEB: "1+1x20"},
        "15m",
        {"namespace": "shop", "owner_kind": "Deployment", "owner": "web"},
        "Kubelets rejected 10 pods of Deployment shop/web within 10 minutes, and it keeps creating new ones.",
    ),
    Case(
        "NumazonesRejectionLoop",
        {WEB: "1x9 4x20"},
        "15m",
    ),
    Case(
        "NumazonesGateTimeouts",
        {"numazones_admission_gates_released_total{reason='timeout'}": "0x9 2x20"},
        "15m",
        {},
        "Gated pods were released after a timeout, although it was unknown whether a node would admit "
        "them: 2 in 15 minutes.",
    ),
    Case(
        "NumazonesGateTimeouts",
        {"numazones_admission_gates_released_total{reason='admissible'}": "0+5x30"},
        "15m",
    ),
    Case(
        "NumazonesGateNotServed",
        {"numazones_gated_pods{served='false'}": "4x20"},
        "15m",
        {},
        "Pods are waiting behind the scheduling gate numazones.io/admission, but the operator does not "
        "release them: 4 now.",
    ),
    Case("NumazonesGateNotServed", {"numazones_gated_pods{served='true'}": "4x20"}, "15m"),
    Case(
        "NumazonesReleasedPodsWithoutNodes",
        {"numazones_released_pods_without_nodes": "2x20"},
        "10m",
        {},
        "Some pods cannot be scheduled because all nodes that the gate released them to are gone, cordoned "
        "or tainted: 2 now.",
    ),
    # Those that are replaced wait for a minute.
    Case("NumazonesReleasedPodsWithoutNodes", {"numazones_released_pods_without_nodes": "2x1 0x20"}, "10m"),
    Case(
        "NumazonesGateWithoutOperator",
        # The operator's series end: its pods are gone.
        {"numazones_gated_pods{served='true'}": "4x5 stale", "numazones_operator_leader": "1x5 stale"},
        "20m",
        {},
        "Pods are waiting behind the scheduling gate, but no operator is running to release them: 4 at "
        "last count.",
    ),
    Case(
        "NumazonesGateWithoutOperator",
        {
            "scheduler_pending_pods{queue='gated'}": "0x10 7x30",
            "numazones_gated_pods{served='true'}": "0x5 stale",
            "numazones_admission_gates_released_total{reason='admissible'}": "12x5 stale",
        },
        "25m",
        {},
        "Pods are waiting behind the scheduling gate, but no operator is running to release them: 7 at "
        "last count.",
    ),
    # Gates of others, where ours was never used.
    Case("NumazonesGateWithoutOperator", {"scheduler_pending_pods{queue='gated'}": "7x30"}, "25m"),
    Case(
        "NumazonesGateWithoutOperator",
        {"numazones_gated_pods{served='true'}": "4x30", "numazones_operator_leader": "1x30"},
        "25m",
    ),
    Case(
        "NumazonesFragmented",
        {"numazones_fragmentation_ratio{shape='cpu=16'}": "0.75x90"},
        "70m",
        {"shape": "cpu=16"},
        "75% of the free exclusive CPUs are of no use to pods of shape cpu=16.",
    ),
    Case("NumazonesFragmented", {"numazones_fragmentation_ratio{shape='cpu=16'}": "0.75x30 0.2x60"}, "70m"),
    Case(  # no series of an extender at all
        "NumazonesExtenderAbsent",
        {"numazones_waiting_pods{scheduler='numazones'}": "3x20"},
        "10m",
        {},
        "Pods are waiting for the scheduler numazones, but its extender is not running: 3 now.",
    ),
    Case(  # the operator itself serves none
        "NumazonesExtenderAbsent",
        {
            "numazones_waiting_pods{scheduler='numazones'}": "3x20",
            "numazones_extender_serving{pod='operator'}": "0x20",
        },
        "10m",
        {},
        "Pods are waiting for the scheduler numazones, but its extender is not running: 3 now.",
    ),
    Case(
        "NumazonesOwnerMisaligned",
        {
            f"{MISALIGNED},owner_kind='Deployment',owner='web',alignable='now'}}": "0x20 2x100",
            f"{MISALIGNED},owner_kind='Deployment',owner='web',alignable='never'}}": "3x120",
        },
        "90m",
        {"namespace": "shop", "owner_kind": "Deployment", "owner": "web"},
        "Pods of Deployment shop/web are not aligned, although their nodes have room to align them: 2 now.",
    ),
    Case(  # pods that nobody owns
        "NumazonesOwnerMisaligned",
        {f"{MISALIGNED},alignable='now'}}": "1x120"},
        "90m",
        {"namespace": "shop"},
        "Pods without an owner in shop are not aligned, although their nodes have room to align them: 1 now.",
    ),
    Case(  # aligned for a moment within the hour, or without room
        "NumazonesOwnerMisaligned",
        {
            f"{MISALIGNED},owner_kind='Job',owner='a',alignable='now'}}": "1x50 0x10 1x50",
            f"{MISALIGNED},owner_kind='Job',owner='b',alignable='never'}}": "1x120",
            f"{MISALIGNED},owner_kind='Job',owner='c',alignable='emptier'}}": "1x120",
            f"{MISALIGNED},owner_kind='Job',owner='d',alignable='unknown'}}": "1x120",
        },
        "90m",
    ),
    Case(  # which owners they are nobody knows
        "NumazonesOwnerMisaligned",
        {"numazones_owner_misaligned_pods{owner='(others)',alignable='now'}": "1x120"},
        "90m",
    ),
    Case(
        "NumazonesExtenderAbsent",
        {
            "numazones_waiting_pods{scheduler='numazones'}": "3x20",
            "numazones_extender_serving{pod='operator'}": "0x20",
            "numazones_extender_serving{pod='scheduler'}": "1x20",
        },
        "10m",
    ),
    Case(
        "NumazonesExtenderAbsent",
        {"numazones_waiting_pods{scheduler='default-scheduler'}": "3x20"},
        "10m",
    ),
    Case(
        "NumazonesExtenderSlow",
        {
            f"{ANSWERED}_bucket{{verb='filter',le='1.0'}}": "0+90x30",
            f"{ANSWERED}_bucket{{verb='filter',le='2.5'}}": "0+100x30",
            f"{ANSWERED}_bucket{{verb='filter',le='+Inf'}}": "0+100x30",
        },
        "25m",
        {"verb": "filter"},
        "The extender's responses to filter are slow, or exceed the scheduler's httpTimeout.",
    ),
    Case(
        "NumazonesExtenderSlow",
        {"numazones_extender_unread_answers_total{verb='bind'}": "0+1x30"},
        "25m",
        {"verb": "bind"},
        "The extender's responses to bind are slow, or exceed the scheduler's httpTimeout.",
    ),
    Case(
        "NumazonesExtenderSlow",
        {
            f"{ANSWERED}_bucket{{verb='filter',le='1.0'}}": "0+100x30",
            f"{ANSWERED}_bucket{{verb='filter',le='+Inf'}}": "0+100x30",
            "numazones_extender_unread_answers_total{verb='filter'}": "4x30",
        },
        "25m",
    ),
    Case(
        "NumazonesExtenderSampled",
        {"numazones_extender_sampled_requests_total": "0x9 2x20"},
        "15m",
        {},
        "The extender rejected all nodes although a node that the scheduler had left out would have "
        "admitted the pod: 2 in 15 minutes.",
    ),
    Case("NumazonesExtenderSampled", {"numazones_extender_sampled_requests_total": "7x30"}, "15m"),
    Case(
        "NumazonesPodsSpin",
        {"numazones_extender_repeated_requests_total": "0+60x30"},
        "15m",
        {},
        "The scheduler keeps retrying a pod and has sent 600 excess requests within 10 minutes.",
    ),
    Case("NumazonesPodsSpin", {"numazones_extender_repeated_requests_total": "0+2x30"}, "15m"),
    Case(
        "NumazonesBindConflicts",
        {
            "numazones_extender_bind_conflicts_total": "0+1x90",
            f"{ANSWERED}_count{{verb='bind'}}": "0+2x90",
        },
        "60m",
        {},
        "50% of bindings are refused because the node has changed since it was chosen.",
    ),
    Case(  # few of many
        "NumazonesBindConflicts",
        {
            "numazones_extender_bind_conflicts_total": "0+1x90",
            f"{ANSWERED}_count{{verb='bind'}}": "0+50x90",
        },
        "60m",
    ),
    Case(  # too few to speak of a share
        "NumazonesBindConflicts",
        {
            "numazones_extender_bind_conflicts_total": "0x50 1x40",
            f"{ANSWERED}_count{{verb='bind'}}": "0x50 2x40",
        },
        "80m",
    ),
    Case(
        "NumazonesHeldRoomStays",
        {"numazones_held_room_pods{pod='a'}": "2x90", "numazones_held_room_pods{pod='b'}": "0x90"},
        "80m",
        {},
        "For 45 minutes, room has been held for pods that have not reached a node (2 now).",
    ),
    Case("NumazonesHeldRoomStays", {"numazones_held_room_pods": "2x20 0 2x20 0 2x20 0 2x20"}, "80m"),
    Case(
        "NumazonesExporterCannotPublish",
        {"numazones_exporter_last_publish_timestamp_seconds{node='a'}": "60x30"},
        "15m",
        {"node": "a"},
        "The exporter on a has not published its NUMAZones for 14m 0s.",
    ),
    Case(
        "NumazonesExporterCannotPublish",
        {"numazones_exporter_last_publish_timestamp_seconds{node='a'}": "0+60x30"},
        "15m",
    ),
    Case(
        "NumazonesExporterSourceFails",
        {"numazones_exporter_source_errors_total{instance='10.0.0.1:9406',source='podresources'}": "0+1x40"},
        "35m",
        {"instance": "10.0.0.1:9406", "source": "podresources"},
        "The exporter on 10.0.0.1:9406 cannot read podresources.",
    ),
    Case(
        "NumazonesExporterSourceFails",
        {"numazones_exporter_source_errors_total{node='a',source='podresources'}": "0x9 1x40"},
        "35m",
    ),
    Case(
        "NumazonesReservedCPUsSaturated",
        cpu_times("reserved", user="0+57x40", idle="0+3x40")
        | cpu_times("shared", user="0+1x40", idle="0+59x40"),
        "35m",
        {"node": "a"},
        "The reserved CPUs of a are 95% busy.",
    ),
    Case(
        "NumazonesReservedCPUsSaturated",
        cpu_times("reserved", user="0+48x40", idle="0+12x40"),
        "35m",
    ),
    Case(
        "NumazonesExclusiveCPUsDisturbed",
        {f"{DISTURBED},interrupt='24',description='PCI-MSI eth0',affinity='3'}}": "600x40"},
        "35m",
        {"node": "a", "numa_node": "0", "cpu": "3", "interrupt": "24", "description": "PCI-MSI eth0"},
        "PCI-MSI eth0 interrupts the exclusive CPU 3 of a 600 times per second.",
    ),
    Case(  # rarely; and what no affinity keeps away
        "NumazonesExclusiveCPUsDisturbed",
        {
            f"{DISTURBED},interrupt='24',description='PCI-MSI eth0',affinity='3'}}": "60x40",
            f"{DISTURBED},interrupt='RES',description='Rescheduling interrupts',affinity=''}}": "900x40",
        },
        "35m",
    ),
    Case(
        "NumazonesSharedPoolUneven",
        cpu_times("shared", user="0+58x40", idle="0+2x40")
        | cpu_times("shared", "1", user="0+6x40", idle="0+54x40"),
        "35m",
        {"node": "a"},
        "On a, the shared pool of one NUMA node is 96.67% busy, and that of another is mostly idle.",
    ),
    Case(  # both are busy
        "NumazonesSharedPoolUneven",
        cpu_times("shared", user="0+58x40", idle="0+2x40")
        | cpu_times("shared", "1", user="0+50x40", idle="0+10x40"),
        "35m",
    ),
    Case(
        "NumazonesExclusiveCPUsIdle",
        held(busy="0+12x10200", held="0+480x10200"),
        "169h",
        HELD_BY,
        "The exclusive CPUs of main in shop/web-0 were only 2.5% busy over the last week.",
    ),
    Case(  # busy enough; idle, but there since yesterday
        "NumazonesExclusiveCPUsIdle",
        held(busy="0+60x10200", held="0+480x10200"),
        "169h",
    ),
    Case(
        "NumazonesExclusiveCPUsIdle",
        held(busy="_x8700 0+12x1500", held="_x8700 0+480x1500"),
        "169h",
    ),
    Case(
        "NumazonesRebalancePolicyInvalid",
        {"numazones_rebalance_policy_ready{mode='Auto',policy='nightly'}": "0x20"},
        "10m",
        {"policy": "nightly"},
        "The operator does not follow RebalancePolicy nightly.",
    ),
    Case(
        "NumazonesRebalancePolicyInvalid",
        {"numazones_rebalance_policy_ready{mode='Auto',policy='nightly'}": "1x20"},
        "10m",
    ),
    Case(
        "NumazonesRebalancePoliciesConflict",
        {"numazones_rebalance_policy_conflicted{mode='Auto',policy='nightly'}": "1x30"},
        "20m",
        {"policy": "nightly"},
        "Plans of RebalancePolicy nightly and those of another policy would undo each other.",
    ),
    Case(
        "NumazonesRebalancePoliciesConflict",
        {"numazones_rebalance_policy_conflicted{mode='Auto',policy='nightly'}": "1x9 0x20"},
        "20m",
    ),
    Case(
        "NumazonesRebalanceFails",
        {f"{RECOMMENDATIONS}{{mode='Auto',policy='nightly',phase='Failed'}}": "0+1x60"},
        "60m",
        {"policy": "nightly"},
        "Plans of policy nightly failed: 60 in the last hour.",
    ),
    Case(
        "NumazonesRebalanceFails",
        {f"{RECOMMENDATIONS}{{mode='Auto',policy='nightly',phase='Succeeded'}}": "0+1x60"},
        "60m",
    ),
    Case(
        "NumazonesRebalanceStuck",
        {"numazones_rebalance_active_plans{mode='Auto',policy='nightly',phase='Executing'}": "1x90"},
        "70m",
        {"policy": "nightly"},
        "A plan of policy nightly has been running for an hour.",
    ),
    Case(
        "NumazonesRebalanceStuck",
        {"numazones_rebalance_active_plans{mode='Auto',policy='nightly',phase='Executing'}": "1x50 0x9 1x40"},
        "70m",
    ),
    Case(
        "NumazonesEvictionsBlocked",
        {f"{EVICTED}{{result='blocked',policy='nightly',namespace='db'}}": "0+1x90"},
        "70m",
        {"policy": "nightly", "namespace": "db"},
        "A PodDisruptionBudget in db blocks a plan of policy nightly.",
    ),
    Case(
        "NumazonesEvictionsBlocked",
        {f"{EVICTED}{{result='success',policy='nightly',namespace='db'}}": "0+1x90"},
        "70m",
    ),
    Case(
        "NumazonesPlanWaits",
        {"numazones_rebalance_active_plans{mode='Approve',policy='nightly',phase='Proposed'}": "1x90"},
        "70m",
        {"policy": "nightly"},
        "A plan of policy nightly has been waiting for approval for an hour.",
    ),
    Case(
        "NumazonesPlanWaits",
        {"numazones_rebalance_active_plans{mode='Recommend',policy='p',phase='Proposed'}": "1x90"},
        "70m",
    ),
]


def test_an_alert_fires_where_it_must_and_nowhere_else(tmp_path: Path) -> None:
    tests: dict[str, list[Test]] = defaultdict(list)
    for case in OUTCOMES:
        rule = ALERTS[case.alert]
        alert = {
            "exp_labels": {**rule["labels"], **case.labels},
            "exp_annotations": {**rule["annotations"], "summary": case.summary},
        }
        fired = [alert] if case.summary else []
        expected = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": fired}
        # What looks back a week reads a value an hour.
        every = "1h" if case.at.endswith("h") else "5m"
        tests[every].append((case.series, {"alert_rule_test": [expected]}))
    for every, some in tests.items():
        check(tmp_path, some, every=every)


def test_each_alert_is_shown_to_fire_and_to_keep_quiet() -> None:
    for fires in (True, False):
        assert {case.alert for case in OUTCOMES if bool(case.summary) is fires} == ALERTS.keys()


RIGHT, RACE = (f"{ACCURACY}{{model='kubelet',accuracy='{accuracy}'}}" for accuracy in ("right", "race"))
RATIO = "model:numazones_prediction_accuracy:ratio_rate1h"


SAMPLES: list[tuple[str, Series, dict[str, float]]] = [
    # Neither side of a ratio needs the other to exist.
    (RATIO, {RIGHT: "0+3x60", RACE: "0+1x60"}, {"model='kubelet'": 0.75}),
    (RATIO, {RIGHT: "0+3x60"}, {"model='kubelet'": 1}),
    (RATIO, {RACE: "0+1x60"}, {"model='kubelet'": 0}),
    (RATIO, {RIGHT: "7x60"}, {}),
    (
        "node:numazones_cluster_zone_available_cpus:sum",
        {
            f"numazones_cluster_zone_available{{node='a',numa_node='{n}',resource='cpu'}}": f"{n}x60"
            for n in (2, 3)
        },
        {"node='a'": 5},
    ),
    (
        "node:numazones_cluster_zone_available_cpus:max",
        {
            f"numazones_cluster_zone_available{{node='a',numa_node='{n}',resource='cpu'}}": f"{n}x60"
            for n in (2, 3)
        },
        {"node='a'": 3},
    ),
    (
        "owner:numazones_owner_rejections:increase10m",
        {
            f"{REJECTIONS}{{namespace='n',owner_kind='Job',owner='j',reason='{reason}'}}": "0+1x60"
            for reason in ("TopologyAffinityError", "SMTAlignmentError")
        },
        {"namespace='n',owner_kind='Job',owner='j'": 20},
    ),
    (
        "numa_node:numazones_numa_cpu_busy:ratio_rate5m",
        cpu_times("shared", user="0+45x60", idle="0+15x60") | cpu_times("reserved", idle="0+60x60"),
        {"node='a',numa_node='0',kind='shared'": 0.75, "node='a',numa_node='0',kind='reserved'": 0},
    ),
    (
        "container:numazones_container_exclusive_cpu_busy:ratio_rate1h",
        held(busy="0+12x60", held="0+480x60"),
        {"namespace='shop',pod='web-0',container='main'": 0.025},
    ),
    (
        "numa_node:cpu_manager_numa_allocation:difference",
        {
            "cpu_manager_numa_allocation_spread{node='a',numa_node='0',pod='x'}": "8x60",
            "kubelet_cpu_manager_allocation_per_numa{node='a',numa_node='0',job='kubelet'}": "10x60",
        },
        {"node='a',numa_node='0'": -2},
    ),
]


def test_what_is_recorded(tmp_path: Path) -> None:
    tests: list[Test] = []
    for record, series, expected in SAMPLES:
        samples = [{"labels": f"{record}{{{labels}}}", "value": value} for labels, value in expected.items()]
        question = {"expr": record, "eval_time": "60m", "exp_samples": samples}
        tests.append((series, {"promql_expr_test": [question]}))
    check(tmp_path, tests)


def test_every_recording_is_shown() -> None:
    assert {record for record, _, _ in SAMPLES} == RECORDED.keys()


def test_each_alert_says_what_to_do_and_has_a_runbook() -> None:
    headings = re.findall(r"^## (Numazones\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == list(ALERTS)
    for name, rule in ALERTS.items():
        # The chart and tools/runbook_links.py add links for those who serve the runbooks somewhere.
        assert rule["annotations"].keys() == {"summary", "description"}, name
        assert rule["labels"]["severity"] in {"info", "warning"}


def test_the_guides_scrape_configuration_is_one(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    block, *_ = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (tmp_path / "numazones.rules.yaml").write_text(yaml.safe_dump({"groups": RULES}))
    (tmp_path / "prometheus.yaml").write_text(block)
    promtool("check", "config", tmp_path / "prometheus.yaml")
