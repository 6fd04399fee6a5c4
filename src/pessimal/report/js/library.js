// The charting library, made a script when a chart is first looked at; its digest is in the page's policy. And what a
// chart needs: colours, names that are safe to draw, a tip beside the pointer.

let arriving = null;

function bokeh() {
  arriving ??= (async () => {
    for (const { id } of document.querySelectorAll('script[id^="library-"]')) {
      const text = new TextDecoder().decode(await bytesOf(id));
      document.head.append(Object.assign(document.createElement('script'), { textContent: text }));
    }
    window.Bokeh.set_log_level('error');
    return window.Bokeh;
  })();
  return arriving;
}

/** A name as a chart may draw it: visible, and nothing that Bokeh would take for a formula. */
const drawn = (text) => literal(text).replace(/\$\$|\\[([]/g, (pair) => `${pair[0]}\u200b${pair[1]}`);

/** A colour of the style sheet, as it is now: light or dark. */
function colour(name) {
  const probe = document.body.appendChild(element('span'));
  probe.style.color = `var(--${name})`;
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** Draws names beside points of a source with x, y, text and side. */
function named(made, source, size) {
  made.text(
    { field: 'x' },
    { field: 'y' },
    { field: 'text' },
    {
      source,
      level: 'overlay',
      text_align: { field: 'side' },
      x_offset: { field: 'away' },
      text_baseline: 'middle',
      text_color: colour('ink'),
      text_font_size: size,
    },
  );
}

const away = (side) => side.map((which) => (which === 'left' ? 10 : -10));

/** Calls back when light becomes dark or dark light. */
const whenThemeChanges = (callback) =>
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', callback);

const isTouched = () => matchMedia('(pointer: coarse)').matches;

/** An empty figure in the page's colours; `options` as Bokeh's figure takes them. */
function figure(Bokeh, options) {
  const ink = colour('ink'),
    soft = colour('soft'),
    line = colour('line');
  const made = Bokeh.Plotting.figure({
    sizing_mode: 'stretch_width',
    toolbar_location: 'above',
    background_fill_color: colour('card'),
    border_fill_color: colour('card'),
    outline_line_color: line,
    ...options,
  });
  made.toolbar.logo = null;
  for (const axis of [made.below[0], made.left[0]]) {
    Object.assign(axis, {
      axis_label_text_color: ink,
      major_label_text_color: soft,
      axis_line_color: line,
      major_tick_line_color: line,
      minor_tick_line_color: null,
      axis_label_text_font_style: 'normal',
      axis_label_text_font_size: '14px',
      major_label_text_font_size: '12px',
    });
  }
  for (const grid of made.center) grid.grid_line_color = line; // nothing else is in the middle yet
  return made;
}

/** A value's place on the screen: linear scales by arithmetic, as 128,000 calls of Bokeh's would be felt. */
function pixels(scale, range) {
  if (range.factors) {
    const places = new Map(range.factors.map((factor) => [factor, scale.compute(factor)]));
    return (value) => places.get(value);
  }
  const start = scale.compute(range.start);
  const slope = (scale.compute(range.end) - start) / (range.end - range.start);
  return (value) => start + slope * (value - range.start);
}

/** The points under an event, the nearest first. Ours and not Bokeh's hover tool, which draws all points anew each time. */
function under(view, event, { x, y, reach }) {
  const corner = view.canvas_view.el.getBoundingClientRect();
  const [left, top] = [event.clientX - corner.left, event.clientY - corner.top];
  const { x_scale, y_scale, bbox } = view.frame;
  if (!bbox.contains(left, top)) return []; // the tool bar, an axis
  const [across, up] = [pixels(x_scale, view.model.x_range), pixels(y_scale, view.model.y_range)];
  const [wide, high] = reach(bbox);
  const found = [];
  for (let i = 0; i < x.length; i++) {
    const dx = across(x[i]) - left;
    if (dx > wide || dx < -wide) continue;
    const dy = up(y[i]) - top;
    if (dy <= high && dy >= -high) found.push([dx * dx + dy * dy, i]);
  }
  return found.sort((a, b) => a[0] - b[0]).map(([, i]) => i);
}

/** Half the width and height within which a point is under the pointer, px: fingers are thick. */
const aroundPoint = () => (isTouched() ? [22, 22] : [7, 7]);

/**
 * Puts a figure into a box in place of what is there. Its points are at `x`, `y`; where some are within `reach` of the
 * pointer, `tell(indices)` gives the lines of a tip, and `press(indices)` hears of a click that is not the end of a drag.
 */
async function put(Bokeh, box, made, { tell, press, ...points }) {
  const inside = element('div', { class: 'plotted' });
  box.replaceChildren(inside);
  const view = await Bokeh.Plotting.show(made, inside);
  const tip = inside.appendChild(element('div', { class: 'tip', hidden: true }));
  let newest = null,
    pressed = null;
  const point = () => {
    const event = newest;
    newest = null;
    const indices = under(view, event, points);
    tip.hidden = !indices.length;
    if (tip.hidden) return;
    tip.replaceChildren(...tell(indices).map((line) => element('div', {}, line)));
    const corner = inside.getBoundingClientRect();
    const room = inside.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(event.clientX - corner.left + 14, room))}px`;
    tip.style.top = `${event.clientY - corner.top + 16}px`;
  };
  inside.addEventListener('pointermove', (event) => {
    if (!newest) requestAnimationFrame(point);
    newest = event;
  });
  inside.addEventListener('pointerleave', () => {
    tip.hidden = true;
  });
  inside.addEventListener(
    'pointerdown',
    (event) => {
      pressed = event;
    },
    true,
  );
  inside.addEventListener('click', (event) => {
    if (
      !press ||
      !pressed ||
      Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) > 4
    )
      return;
    const indices = under(view, event, points);
    if (indices.length) press(indices);
  });
  return view;
}

/** The same drawing, never begun while it is still under way, and only once for all that was asked meanwhile. */
function oneAtATime(draw) {
  let last = Promise.resolve(),
    newest = null;
  return () => {
    const own = (newest = Symbol('drawing'));
    const next = () => (own === newest ? draw() : undefined);
    return (last = last.then(next, next));
  };
}

/** Takes a chart away with all that Bokeh keeps of it: another one of 128,000 points would else be added to it. */
function forget(Bokeh, view) {
  const { document: held } = view.model;
  view.remove();
  held.clear();
  Bokeh.documents.splice(Bokeh.documents.indexOf(held), 1);
}

/** Calls back once, when the element comes near the view. */
function whenNear(box, callback) {
  const watcher = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watcher.disconnect();
      callback();
    },
    { rootMargin: '300px' },
  );
  watcher.observe(box);
}
