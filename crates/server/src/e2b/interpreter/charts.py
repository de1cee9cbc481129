# What a figure of matplotlib shows, as E2B's SDKs read it (`Result.chart`): part of the kernel in front of which it stands.
#
# Own code and not the package `e2b_charts`: that wants newer versions of matplotlib and pydantic than distributions have.
# It imports nothing before the kernel has done so.
class Charts:
    #: A figure with more than so many values is a picture and nothing else.
    MOST = 20000
    #: The same for boxes: each is held against all lines.
    MOST_BOXES = 100

    def of(self, figure):
        """The one chart of a figure, or all of them as a chart of charts; nothing where nothing is drawn."""
        axes = figure.get_axes()
        if not any(ax.has_data() for ax in axes):
            return None
        self.left = self.MOST
        if len(axes) == 1:
            return self.chart(axes[0])
        title = getattr(figure, "_suptitle", None)
        title = title.get_text() if title is not None else None
        return {"type": "superchart", "title": title or None, "elements": [self.chart(ax) for ax in axes]}

    def chart(self, ax):
        kind = self.kind(ax)
        chart = {"type": kind, "title": ax.get_title() or None, "elements": []}
        if kind in ("line", "scatter", "bar", "box_and_whisker"):
            for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
                label = axis.get_label_text() or None
                unit = re.search(r"\s\((.*?)\)|\[(.*?)\]", label or "")
                chart[name + "_label"], chart[name + "_unit"] = label, unit and (unit[1] or unit[2])
                if kind in ("line", "scatter"):
                    self.ticks(chart, name, axis)
        if kind != "unknown":
            chart["elements"] = getattr(self, kind)(ax, chart)
        return chart

    def kind(self, ax):
        from matplotlib import collections, lines, patches, text
        shown = [thing for thing in ax._children if not isinstance(thing, text.Text)]
        only = lambda kinds, things: all(isinstance(thing, kinds) for thing in things)
        if only(lines.Line2D, shown):
            return "line"
        if only((patches.PathPatch, lines.Line2D), shown):
            return "box_and_whisker"
        drawn = [thing for thing in shown if not (isinstance(thing, lines.Line2D) and self.is_rule(ax, thing))]
        for kinds, name in ((collections.PathCollection, "scatter"), (patches.Wedge, "pie"), (patches.Rectangle, "bar")):
            if only(kinds, drawn):
                return name
        return "unknown"

    @staticmethod
    def is_rule(ax, line):
        """A line from edge to edge (`axhline`) marks something, and is no data."""
        return line.get_transform() != ax.transData

    def take(self, values):
        """Values that are given out; too many of them end the search."""
        values = list(values)
        self.left -= len(values)
        if self.left < 0:
            raise ValueError("too many values")
        return values

    @staticmethod
    def value(of):
        if type(of).__name__ == "datetime64":
            return str(of.astype("datetime64[s]"))
        if hasattr(of, "isoformat"):
            return of.isoformat()
        return of.item() if hasattr(of, "item") else of

    def ticks(self, chart, name, axis):
        from matplotlib import dates
        converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
        places, labels = self.take(axis.get_majorticklocs()), [label.get_text() for label in axis.get_majorticklabels()]
        scale = axis.get_scale()
        if "DateConverter" in type(converter).__name__:
            scale, places = "datetime", [dates.num2date(place) for place in places]
        elif scale == "linear" and places and all(
                place == number and label != str(number) for number, (place, label) in enumerate(zip(places, labels))):
            scale = "categorical"
        chart[name + "_ticks"] = [self.value(place) for place in places]
        chart[name + "_tick_labels"], chart[name + "_scale"] = labels, scale

    def points(self, label, pairs):
        return {"label": label, "points": [[self.value(x), self.value(y)] for x, y in self.take(pairs)]}

    def line(self, ax, _):
        label = lambda line: re.sub(r"^_child(\d+)$", r"Line \1", str(line.get_label()))
        lines = [line for line in ax.get_lines() if not self.is_rule(ax, line)]
        return [self.points(label(line), zip(line.get_xdata(), line.get_ydata())) for line in lines]

    def scatter(self, ax, _):
        return [self.points(str(drawn.get_label()), drawn.get_offsets()) for drawn in ax.collections]

    @staticmethod
    def swap(chart):
        """What lies on its side is told as if it stood."""
        for what in ("label", "unit"):
            chart["x_" + what], chart["y_" + what] = chart["y_" + what], chart["x_" + what]

    @staticmethod
    def names(axis):
        """What an axis says at a place: its nearest mark, unless that is a number and another one."""
        marks = zip(axis.get_majorticklocs(), axis.get_majorticklabels())
        marks = sorted((at, label.get_text()) for at, label in marks if label.get_text())
        places = [at for at, _ in marks]

        def name(place):
            after = bisect.bisect(places, place)
            near = min(marks[max(after - 1, 0):after + 1], key=lambda mark: abs(mark[0] - place), default=None)
            if near and (math.isclose(near[0], place, abs_tol=1e-9) or not re.fullmatch(r"[-\u2212]?[\d.,]+", near[1])):
                return near[1]
            return "%g" % place

        return name

    def bar(self, ax, chart):
        elements, lies = [], False
        along = {False: self.names(ax.xaxis), True: self.names(ax.yaxis)}
        for container in ax.containers:
            lies = getattr(container, "orientation", None) == "horizontal"
            group = re.sub(r"^_container(\d+)$", r"Group \1", str(container.get_label()))
            for bar in self.take(container):
                if lies:
                    middle, value = bar.get_y() + bar.get_height() / 2, bar.get_width()
                else:
                    middle, value = bar.get_x() + bar.get_width() / 2, bar.get_height()
                elements.append({"label": along[lies](middle), "group": group, "value": self.value(value)})
        if lies:
            self.swap(chart)
        return elements

    def pie(self, ax, _):
        return [{"label": str(wedge.get_label()), "angle": abs(round(float(wedge.theta2) - float(wedge.theta1), 6)),
                 "radius": self.value(wedge.r)} for wedge in self.take(ax.patches)]

    def box_and_whisker(self, ax, chart):
        """Boxes that are filled (`patch_artist=True`): others are lines among lines."""
        boxes = [box.get_path().vertices.tolist() for box in ax.patches]
        if len(boxes) > self.MOST_BOXES:
            raise ValueError("too many boxes")
        lines = [[(float(x), float(y)) for x, y in self.take(zip(line.get_xdata(), line.get_ydata()))] for line in ax.lines]
        near = lambda a, b: math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)

        def tell(box, group):
            """One box whose groups stand side by side along this axis, and whether whiskers say that they do."""
            along, across = [corner[group] for corner in box], [corner[1 - group] for corner in box]
            middle, low, high = (min(along) + max(along)) / 2, min(across), max(across)
            found = {"min": low, "first_quartile": low, "median": None, "third_quartile": high, "max": high, "outliers": []}
            whiskers = 0
            for drawn, line in zip(ax.lines, lines):
                values = [point[1 - group] for point in line]
                if drawn.get_linestyle() == "None":
                    found["outliers"] += [point[1 - group] for point in line if near(point[group], middle)]
                elif len(line) != 2 or not near((line[0][group] + line[1][group]) / 2, middle):
                    continue
                elif near(*values):
                    if not near(line[0][group], line[1][group]) and low <= values[0] <= high:
                        found["median"] = values[0]
                elif near(line[0][group], line[1][group]) and near(max(values), low):
                    found["min"], whiskers = min(values), whiskers + 1
                elif near(line[0][group], line[1][group]) and near(min(values), high):
                    found["max"], whiskers = max(values), whiskers + 1
            return middle, whiskers, found

        standing, lying = ([tell(box, group) for box in boxes] for group in (0, 1))
        lies = sum(whiskers for _, whiskers, _ in lying) > sum(whiskers for _, whiskers, _ in standing)
        if lies:
            self.swap(chart)
        name = self.names(ax.yaxis if lies else ax.xaxis)
        return [{"label": name(middle), **found} for middle, _, found in (lying if lies else standing)]


