#!/usr/bin/env python3
"""Reads the event files of a folder by the Python package tensorboard, and prints what is in them as JSON.

With --available it only says by its exit status whether the package is there.
"""
import json
import struct
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError:
    sys.exit(1)


def pixels_of(png):
    """The raw rows of a PNG without filters, and its width."""
    import zlib

    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width = 8, b"", 0
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        (crc,) = struct.unpack(">I", png[at + 8 + size : at + 12 + size])
        assert crc == zlib.crc32(kind + body), kind
        if kind == b"IHDR":
            width = struct.unpack(">I", body[:4])[0]
        if kind == b"IDAT":
            data += body
        at += 12 + size
    return width, list(zlib.decompress(data))


def main(folder):
    events = EventAccumulator(folder, size_guidance={"images": 0, "histograms": 0, "scalars": 0})
    events.Reload()
    tags = events.Tags()
    result = {"scalars": {}, "histograms": {}, "images": {}, "graph": [], "hyperparameters": {}}
    for tag in tags["scalars"]:
        result["scalars"][tag] = [[e.step, e.value] for e in events.Scalars(tag)]
    for tag in tags["histograms"]:
        h = events.Histograms(tag)[-1].histogram_value
        result["histograms"][tag] = {"min": h.min, "max": h.max, "num": h.num, "sum": h.sum,
                                     "limits": list(h.bucket_limit), "counts": list(h.bucket)}
    for tag in tags["images"]:
        image = events.Images(tag)[-1]
        width, rows = pixels_of(image.encoded_image_string)
        assert width == image.width
        result["images"][tag] = {"height": image.height, "width": image.width, "rows": rows}
    if tags["graph"]:
        result["graph"] = [[n.name, n.op, list(n.input)] for n in events.Graph().node]
    for tag in ("_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"):
        try:
            content = events.SummaryMetadata(tag).plugin_data.content
        except KeyError:
            continue
        data = plugin_data_pb2.HParamsPluginData.FromString(content)
        if tag.endswith("experiment"):
            result["metrics"] = [m.name.tag for m in data.experiment.metric_infos]
            result["hyperparameter_types"] = {h.name: h.type for h in data.experiment.hparam_infos}
        elif tag.endswith("start_info"):
            for name, value in data.session_start_info.hparams.items():
                result["hyperparameters"][name] = getattr(value, value.WhichOneof("kind"))
        else:
            result["status"] = data.session_end_info.status
    json.dump(result, sys.stdout)


if sys.argv[1:] != ["--available"]:
    main(sys.argv[1])
