// Charts of models: how far pairs agree, and the map. Drawn beside the static figures, from the same tables.

const NAMES = {
  kendall: "Kendall's τ",
  spearman: "Spearman's ρ",
  rbo: 'rank-biased overlap',
  top_overlap: 'shared at the top',
  bottom_overlap: 'shared at the bottom',
};
const DISTINCT = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#8c6d31', '#7b6fd0'];

function chartsOfModels() {
  const all = json('charts');
  for (const box of document.querySelectorAll('[data-chart]')) {
    const chart = all[Number(box.dataset.chart)];
    const draw = chart.kind === 'agreement' ? agreementChart(box, chart) : mapChart(box, chart);
    whenNear(box, () => {
      draw();
      whenThemeChanges(draw);
    });
  }
}

/** The names of models as a chart draws them, each once. */
function names(models) {
  const used = new Map();
  return models.map((model) => {
    const name = drawn(model),
      times = (used.get(name) ?? 0) + 1;
    used.set(name, times);
    return times > 1 ? `${name} (${times})` : name;
  });
}

function agreementChart(box, chart) {
  let measure = chart.measures[0],
    view = null;
  const plot = element('div', {
    class: 'plot',
    role: 'img',
    'aria-label': 'Agreement of each pair of models; the numbers are in the table',
  });
  const own = choice(
    'Measure',
    chart.measures.map((key) => [key, NAMES[key]]),
    measure,
    (value) => {
      measure = value;
      draw();
    },
  );
  box.append(element('div', { class: 'controls' }, own), plot);
  box.hidden = false;
  const place = Object.fromEntries(chart.columns.map((column, i) => [column, i]));
  const draw = oneAtATime(async () => {
    const Bokeh = await bokeh();
    const labels = names(chart.models),
      cells = [];
    for (const pair of chart.pairs) {
      const value = pair[place[measure]];
      if (value === null) continue;
      cells.push({ a: pair[0], b: pair[1], value, pair }, { a: pair[1], b: pair[0], value, pair });
    }
    const values = cells.map((cell) => cell.value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const mapper = new Bokeh.LinearColorMapper({
      palette: Bokeh.Palettes.cividis(256),
      low,
      high: high > low ? high : low + 1e-9,
    });
    const source = new Bokeh.ColumnDataSource({
      data: { x: cells.map((c) => labels[c.b]), y: cells.map((c) => labels[c.a]), value: values },
    });
    const made = figure(Bokeh, {
      height: 200 + 22 * labels.length,
      x_range: labels,
      y_range: [...labels].reverse(),
      tools: 'save',
    });
    made.below[0].major_label_orientation = 0.9;
    for (const grid of made.center) grid.grid_line_color = null;
    made.rect({ field: 'x' }, { field: 'y' }, 0.96, 0.96, {
      source,
      line_color: null,
      fill_color: { field: 'value', transform: mapper },
    });
    const bar = new Bokeh.ColorBar({
      color_mapper: mapper,
      background_fill_color: null,
      major_label_text_color: colour('soft'),
      bar_line_color: null,
      width: 10,
      padding: 4,
    });
    made.add_layout(bar, 'right');
    if (view) forget(Bokeh, view);
    view = await put(Bokeh, plot, made, {
      ...{ x: cells.map((c) => labels[c.b]), y: cells.map((c) => labels[c.a]) },
      reach: (bbox) => [bbox.width / labels.length / 2, bbox.height / labels.length / 2],
      tell: ([i]) => toldPair(cells[i]),
    });
  });
  function toldPair({ a, b, pair }) {
    const get = (column) => (column in place ? pair[place[column]] : null);
    const lines = [`${literal(chart.models[a])} × ${literal(chart.models[b])}`];
    for (const key of chart.measures) {
      if (get(key) === null) continue;
      const [low, high] = key === 'kendall' ? ['low', 'high'] : [`${key}_low`, `${key}_high`];
      const interval = get(low) === null ? '' : ` [${fixed(get(low), 3)}, ${fixed(get(high), 3)}]`;
      const top = key.endsWith('_overlap') && get('top') !== null ? ` (of ${get('top')})` : '';
      lines.push(`${NAMES[key]}${top} ${fixed(get(key), 3)}${interval}`);
    }
    return get('n') === null ? lines : [...lines, `n = ${whole(get('n'))}`];
  }
  return draw;
}

function mapChart(box, chart) {
  const plot = element('div', {
    class: 'plot',
    role: 'img',
    'aria-label': 'Map of the models: near means alike',
  });
  let view = null;
  box.append(plot);
  box.hidden = false;
  const groups = chart.described.developer ?? chart.models.map(() => null);
  const kinds = [...new Set(groups)];
  return oneAtATime(async () => {
    const Bokeh = await bokeh();
    const colours = groups.map((group) => DISTINCT[kinds.indexOf(group) % DISTINCT.length]);
    const side = sides(chart.x, chart.y, plot.clientWidth < 520);
    const source = new Bokeh.ColumnDataSource({
      data: { x: chart.x, y: chart.y, colour: colours, text: names(chart.models), side, away: away(side) },
    });
    const made = figure(Bokeh, {
      height: 460,
      match_aspect: true,
      tools: 'pan,wheel_zoom,box_zoom,reset,save',
      x_axis_label: 'distances mean something, directions do not',
    });
    made.toolbar.active_scroll = null;
    made.toolbar.active_drag = null;
    made.x_range.range_padding = 0.25;
    made.y_range.range_padding = 0.12;
    made.scatter(
      { field: 'x' },
      { field: 'y' },
      { source, size: 13, marker: 'circle', fill_color: { field: 'colour' }, line_color: colour('card') },
    );
    named(made, source, '12px');
    if (view) forget(Bokeh, view);
    view = await put(Bokeh, plot, made, {
      ...{ x: chart.x, y: chart.y, reach: aroundPoint },
      tell: (indices) => indices.slice(0, TOLD).map(toldModel),
    });
  });
  function toldModel(i) {
    const { developer, base, parameters } = chart.described;
    const parts = [
      developer?.[i] && `by ${literal(developer[i])}`,
      base?.[i] && `from ${literal(base[i])}`,
      parameters?.[i] && `${whole(parameters[i])} parameters`,
    ];
    return [literal(chart.models[i]), ...parts.filter(Boolean)].join(', ');
  }
}
