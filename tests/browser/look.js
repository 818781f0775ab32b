// SPDX-FileCopyrightText: The inferops.sglang authors
// SPDX-License-Identifier: GPL-3.0-or-later
//
// What somebody would see who looks at the page, as lists of what is wrong with it; tests evaluate it in the page.
(() => {
  const box = (element) => element.getBoundingClientRect();
  const shown = (element) => element.checkVisibility() && box(element).width > 0;
  const told = (element) => element.textContent.trim().slice(0, 40);
  const root = document.documentElement;
  const result = {
    width: root.clientWidth,
    scrolled: root.scrollWidth,
    plots: 0,
    small: [],
    overlapping: [],
    outside: [],
    tiny: [],
    pale: [],
  };

  for (const svg of document.querySelectorAll("figure svg")) {
    result.plots += 1;
    const frame = box(svg);
    const name = svg.querySelector("title").textContent;
    if (frame.width < 250 || frame.height < 150) result.small.push(name);
    const texts = [...svg.querySelectorAll("text")].filter((text) => told(text));
    const scale = frame.width / svg.viewBox.baseVal.width;
    texts.forEach((text, position) => {
      const here = box(text);
      if (here.left < frame.left - 1 || here.right > frame.right + 1) result.outside.push(`${name}: ${told(text)}`);
      if (here.top < frame.top - 1 || here.bottom > frame.bottom + 1) result.outside.push(`${name}: ${told(text)}`);
      if (parseFloat(getComputedStyle(text).fontSize) * scale < 9) result.tiny.push(`${name}: ${told(text)}`);
      for (const other of texts.slice(position + 1)) {
        const there = box(other);
        const across = Math.min(here.right, there.right) - Math.max(here.left, there.left);
        const down = Math.min(here.bottom, there.bottom) - Math.max(here.top, there.top);
        // The box of a line of text has room above and below its letters.
        if (across > 1 && down > 4 * scale) result.overlapping.push(`${name}: ${told(text)} and ${told(other)}`);
      }
    });
  }

  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!own || element.closest("defs, title, desc") || !shown(element)) continue;
    const style = getComputedStyle(element);
    const [high, low] = [light(channels(element.closest("svg") ? style.fill : style.color)), light(behind(element))]
      .sort((one, other) => other - one);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) result.pale.push(`${told(element)}: ${contrast.toFixed(2)}`);
    if (!element.closest("svg") && parseFloat(style.fontSize) < 11) result.tiny.push(told(element));
  }
  return result;
})()
