"""The paper's W&B dashboards as code: ``python -P -m arith_erd.paper.dashboard --entity E --project P [--dry-run]``.

It makes a workspace to watch while runs train, and a report with the paper's figures. Both follow from ``claims.yaml``
and use the metrics of ``logger=wandb``. ``--dry-run`` prints both without an account.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb
import yaml

from arith_erd.bundled import CONF
from arith_erd.checks import import_extra
from arith_erd.errors import UserError, first_line
from arith_erd.report.claims_file import Claim, Paper, load_paper
from arith_erd.report.collect import DEFAULT_OPTIONS, OUR_RUNS
from arith_erd.report.measures import EpochsTo, Metrics, ProbeColumn
from arith_erd.runs.identity import NAMED_GROUPS
from arith_erd.stats import TARGET_ACCURACY
from arith_erd.system.cli_errors import one_line_errors

with one_line_errors():
    import_extra("wandb_workspaces", "dashboard")
    from wandb_workspaces import expr
    from wandb_workspaces.reports.v2 import interface as wr
    from wandb_workspaces.workspaces import interface as ws

ACCURACIES = ("val_seq_acc", "train_seq_acc", "val_token_acc", "train_token_acc")


def build_workspace(entity: str, project: str) -> ws.Workspace:
    """A workspace with sections for accuracies, the loss and probes."""
    sections: dict[str, list[Any]] = {"Accuracy": [*map(_line, ACCURACIES)], "Probes": [*map(_media, probes())]}
    sections["Loss"] = [_line("train_loss", log_y=True), _line("seconds")]
    return ws.Workspace(
        entity=entity,
        project=project,
        name="Arithmetic: seeds by task, split, model and ablation",
        auto_generate_panels=False,
        sections=[ws.Section(name=name, is_open=True, panels=panels) for name, panels in sections.items()],
        settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=100),
        runset_settings=ws.RunsetSettings(groupby=[expr.Config(f"{group}.name") for group in NAMED_GROUPS]),
    )


def probes() -> list[str]:
    """The probes of trained networks, which are those that log to W&B."""
    configs = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (CONF / "probe").glob("*.yaml")}
    return sorted(name for name, probe in configs.items() if "models" in probe.get("needs", []))


def build_report(entity: str, project: str, paper: Paper) -> wr.Report:
    """A report with, for each of the paper's figures that needs runs, heading, caption, numbers, command and panels."""
    blocks: list[Any] = [
        wr.P(f"{paper.authors}, {paper.title}, {paper.journal}, doi:{paper.doi}."),
        wr.P("Lines are means over seeds, bands their range. Verdicts on every number: arith-report"),
    ]
    for figure in paper.figures:
        claims = [claim for claim in paper.claims if claim.figure == figure.name and claim.measure.source == OUR_RUNS]
        if claims:
            numbers = "; ".join(f"{claim.statement}: {claim.published_text}" for claim in claims)
            commands = [wr.P([wr.InlineCode(paper.command(make, Path("runs")))]) for make in figure.make]
            blocks += [wr.H2(figure.title), wr.P(figure.caption), wr.P(f"The paper: {numbers}."), *commands]
            blocks.append(wr.PanelGrid(_runsets(claims), panels=_panels(claims)))
    title = "The paper's figures, redrawn"
    return wr.Report(entity=entity, project=project, title=title, description=paper.title, blocks=blocks, width="fluid")


def _panels(claims: Sequence[Claim]) -> list[Any]:
    """Panels for the claims, two a row: accuracies, epochs to 95% as bars, and figures of probes."""
    measures = [claim.measure for claim in claims]
    columns = {m.column for m in measures if isinstance(m, Metrics | EpochsTo)}
    columns |= {m.minus_column for m in measures if isinstance(m, Metrics)}
    panels: list[Any] = [_line(column) for column in ACCURACIES if column in columns]
    if any(isinstance(m, EpochsTo) and m.accuracy == TARGET_ACCURACY for m in measures):
        bars: dict[str, Any] = {"metrics": [wr.SummaryMetric("epochs_to_95")], "groupby": wr.Config("ablation.name")}
        panels.append(wr.BarPlot(title="epochs to 95%", groupby_aggfunc="median", **bars))
    panels += [_media(name) for name in dict.fromkeys(m.probe for m in measures if isinstance(m, ProbeColumn))]
    for index, panel in enumerate(panels):
        panel.layout = wr.Layout(x=12 * (index % 2), y=9 * (index // 2), w=12, h=9)
    return panels


def _runsets(claims: Sequence[Claim]) -> list[Any]:
    """One set of runs per task: filtered by the options that all claims share, grouped by the others."""
    arms = [{**DEFAULT_OPTIONS, **runs} for claim in claims for _, runs in claim.measure.weighted_runs]
    sets = []
    for task in dict.fromkeys(arm["task"] for arm in arms):
        of_task = [arm for arm in arms if arm["task"] == task]
        differing = [key for key in DEFAULT_OPTIONS if len({arm[key] for arm in of_task}) > 1]
        filters = [expr.Config(f"{key}.value.name") == of_task[0][key] for key in NAMED_GROUPS if key not in differing]
        keys = differing or NAMED_GROUPS
        by = [f"config.{key}.name" if key in NAMED_GROUPS else f"config.task.{key}" for key in keys]
        sets.append(wr.Runset(name=task, filters=expr.And(*filters), groupby=by))
    return sets


def _line(metric: str, **options: Any) -> wr.LinePlot:
    """A panel of a metric over the epochs: the mean of each group of runs, and the range of its seeds."""
    options |= {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax", "max_runs_to_show": 100}
    options |= {"range_y": (0.0, 1.0)} if metric in ACCURACIES else {}
    title = metric.replace("_", " ").replace("acc", "accuracy")
    return wr.LinePlot(title=title, x="epoch", y=[metric], title_x="epoch", aggregate=True, **options)


def _media(probe: str) -> wr.MediaBrowser:
    return wr.MediaBrowser(title=probe.replace("_", " "), media_keys=[f"{probe}/figure"], num_columns=2)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -P -m arith_erd.paper.dashboard", description="W&B dashboards as code")
    parser.add_argument("--entity", required=True, help="W&B user or team")
    parser.add_argument("--project", required=True, help="W&B project, the one of logger.project")
    parser.add_argument("--dry-run", action="store_true", help="print the specification as JSON; needs no account")
    options = parser.parse_args(arguments)
    target = options.entity, options.project
    with one_line_errors():
        parts: dict[str, Any] = {"workspace": build_workspace(*target), "report": build_report(*target, load_paper())}
        if options.dry_run:
            models = {name: json.loads(p._to_model().model_dump_json(by_alias=True)) for name, p in parts.items()}
            print(json.dumps(models, indent=2))
            return
        try:
            print("\n".join(part.save().url for part in parts.values()))
        except (wandb.Error, OSError, ValueError) as error:
            target_text = f"--entity={options.entity} --project={options.project}"
            raise UserError(f"{target_text}: not saved ({first_line(error)}); --dry-run prints it") from error


if __name__ == "__main__":
    main()
