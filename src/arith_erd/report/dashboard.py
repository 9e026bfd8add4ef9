"""W&B dashboards as code: ``python -m arith_erd.report.dashboard --entity E --project P [--dry-run]``.

A workspace for looking while runs train, grouped by task, split, model and ablation with mean and range over seeds, and
a report with the paper's figures. They name the metrics that ``logger=wandb`` writes: the columns of ``metrics.csv``,
the values of ``summary.json``, and each probe's figure and rows. ``--dry-run`` prints both and needs no account.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb
import yaml
from wandb_workspaces import expr
from wandb_workspaces.reports.v2 import interface as wr
from wandb_workspaces.workspaces import interface as ws

from ..config.compose import CONF
from ..errors import UserError, first_line
from ..runs.replicas import GROUPS
from ..system.boundary import one_line_errors
from .collect import DEFAULTS, OURS
from .measures import EpochsTo, Metrics, ProbeColumn
from .paper import Claim, Paper, PaperFigure, load_paper

ACCURACIES = {
    "val_seq_acc": "Validation sequences",
    "train_seq_acc": "Training sequences",
    "val_token_acc": "Validation tokens",
    "train_token_acc": "Training tokens",
}


def build_workspace(entity: str, project: str) -> ws.Workspace:
    """Sections for sequence accuracy, token accuracy, loss, probes and final numbers."""
    loss = _lines("Training loss per token (nats)", "train_loss", log_y=True)
    final = {
        "Epochs to 95%, of the seeds that got there": "epochs_to_95",
        "Mean absolute error on the validation set": "val_mae",
        "Token accuracy when decoding": "val_token_acc_autoregressive",
    }
    sections: dict[str, list[Any]] = {
        "Sequence accuracy": [_accuracy("val_seq_acc"), _accuracy("train_seq_acc")],
        "Token accuracy": [_accuracy("val_token_acc"), _accuracy("train_token_acc")],
        "Loss": [loss, _lines("Seconds an epoch", "seconds")],
        "Probes": [_media(probe) for probe in probes()],
        "Final numbers": [
            wr.ScalarChart(title=title, metric=wr.SummaryMetric(metric), groupby_aggfunc="median")
            for title, metric in final.items()
        ],
    }
    return ws.Workspace(
        entity=entity,
        project=project,
        name="Arithmetic: seeds by task, split, model and ablation",
        auto_generate_panels=False,
        sections=[
            ws.Section(
                name=name,
                is_open=True,
                panels=panels,
                layout_settings=ws.SectionLayoutSettings(columns=max(2, min(3, len(panels))), rows=1),
                panel_settings=ws.SectionPanelSettings(x_axis="epoch"),
            )
            for name, panels in sections.items()
        ],
        settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=100),
        runset_settings=ws.RunsetSettings(groupby=[expr.Config(f"{group}.name") for group in GROUPS]),
    )


def probes() -> list[str]:
    """Every probe of trained networks: those are the ones that log to W&B."""
    files = sorted((CONF / "probe").glob("*.yaml"))
    return [path.stem for path in files if "subjects" in yaml.safe_load(path.read_text()).get("needs", [])]


def build_report(entity: str, project: str, paper: Paper) -> wr.Report:
    """A heading, a caption, the command and the panels for each of the paper's figures that runs make."""
    blocks: list[Any] = [
        wr.P(f"{paper.authors}, {paper.title}, {paper.journal}, doi:{paper.doi}."),
        wr.P("Lines are means over seeds, bands their range. Verdicts on every number: python -m arith_erd.report"),
        wr.TableOfContents(),
    ]
    for figure in paper.figures:
        claims = [claim for claim in paper.claims if claim.figure == figure.name and claim.measure.source == OURS]
        if claims:
            blocks += _figure(figure, claims, paper)
    title = "The paper's figures, redrawn"
    return wr.Report(entity=entity, project=project, title=title, description=paper.title, blocks=blocks, width="fluid")


def _figure(figure: PaperFigure, claims: Sequence[Claim], paper: Paper) -> list[Any]:
    """What ``paper.yaml`` says of a figure, its numbers, and the runs and metrics that its claims ask for."""
    panels = _panels(claims)
    for index, panel in enumerate(panels):
        panel.layout = wr.Layout(x=12 * (index % 2), y=9 * (index // 2), w=12 if len(panels) > 1 else 24, h=9)
    numbers = "; ".join(f"{claim.statement}: {claim.text}" for claim in claims if claim.kind == "result")
    texts: list[Any] = [figure.caption, f"The paper: {numbers}."]
    commands = [[wr.InlineCode(paper.command(make, Path("runs")))] for make in figure.make]
    return [
        wr.H2(figure.title),
        *(wr.P(text) for text in (*texts, *commands)),
        wr.PanelGrid(_runsets(claims), panels=panels),
    ]


def _panels(claims: Sequence[Claim]) -> list[Any]:
    """Accuracies, epochs to 95% as bars, and figures of probes, as far as the claims are about them."""
    measures = [claim.measure for claim in claims]
    columns = {m.column for m in measures if isinstance(m, Metrics | EpochsTo)}
    columns |= {m.minus_column for m in measures if isinstance(m, Metrics)}
    panels: list[Any] = []
    if any(isinstance(m, EpochsTo) and m.accuracy == 0.95 for m in measures):
        how: dict[str, Any] = {"groupby_aggfunc": "median", "groupby_rangefunc": "minmax"}
        how |= {"metrics": [wr.SummaryMetric("epochs_to_95")], "groupby": wr.Config("ablation.name")}
        panels.append(wr.BarPlot(title="Epochs to 95%", **how))
    panels += [_accuracy(column) for column in ACCURACIES if column in columns]
    return panels + [_media(name) for name in dict.fromkeys(m.probe for m in measures if isinstance(m, ProbeColumn))]


def _runsets(claims: Sequence[Claim]) -> list[Any]:
    """One set of runs per task: filtered by what all claims share, grouped by what they differ in."""
    arms = [{**DEFAULTS, **runs} for claim in claims for _, runs in claim.arms]
    sets = []
    for task in dict.fromkeys(arm["task"] for arm in arms):
        of_task = [arm for arm in arms if arm["task"] == task]
        differ = [key for key in DEFAULTS if len({arm[key] for arm in of_task}) > 1]
        shared = {key: of_task[0][key] for key in ("task", *DEFAULTS) if key not in differ and key in GROUPS}
        by = [f"{key}.name" if key in GROUPS else f"task.{key}" for key in differ or GROUPS]
        filters = [expr.Config(f"{group}.value.name") == option for group, option in shared.items()]
        sets.append(wr.Runset(name=task, filters=expr.And(*filters), groupby=[f"config.{key}" for key in by]))
    return sets


def _lines(title: str, metric: str, **options: Any) -> wr.LinePlot:
    """A metric over the epochs: the mean of each group of runs, and the range between its seeds."""
    how: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "minmax", "max_runs_to_show": 100}
    return wr.LinePlot(title=title, x="epoch", y=[metric], title_x="epoch", aggregate=True, **how, **options)


def _accuracy(metric: str) -> wr.LinePlot:
    return _lines(ACCURACIES[metric], metric, range_y=(0.0, 1.0))


def _media(probe: str) -> wr.MediaBrowser:
    return wr.MediaBrowser(title=probe.replace("_", " "), media_keys=[f"{probe}/figure"], num_columns=2)


def parts(entity: str, project: str) -> dict[str, Any]:
    return {"workspace": build_workspace(entity, project), "report": build_report(entity, project, load_paper())}


def specification(entity: str, project: str) -> dict[str, Any]:
    """Both as W&B's server would get them."""
    models = {name: part._to_model() for name, part in parts(entity, project).items()}
    return {name: json.loads(m.model_dump_json(by_alias=True, exclude_none=True)) for name, m in models.items()}


def save(entity: str, project: str) -> list[str]:
    """Save both and return their addresses; needs an account.

    Raises:
        UserError: if W&B does not let us, in its own words.
    """
    made = parts(entity, project)
    try:
        return [part.save().url for part in made.values()]
    except (wandb.Error, OSError, ValueError) as error:
        where = f"--entity={entity} --project={project}"
        raise UserError(f"{where}: not saved ({first_line(error)}); --dry-run prints it") from error


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m arith_erd.report.dashboard",
        description="Make a W&B workspace and a W&B report for the runs of a project.",
    )
    parser.add_argument("--entity", required=True, help="W&B user or team")
    parser.add_argument("--project", required=True, help="W&B project, as logger.project")
    parser.add_argument("--dry-run", action="store_true", help="print the specification as JSON; needs no account")
    options = parser.parse_args(arguments)
    where = options.entity, options.project
    with one_line_errors():
        print(json.dumps(specification(*where), indent=2) if options.dry_run else "\n".join(save(*where)))


if __name__ == "__main__":
    main()
