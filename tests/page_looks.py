"""Scripts that check how a page looks and is named, for people who see little or use no mouse."""

# contrasts of visible texts and icons by WCAG, [text or icon, ratio]: those below 4.5 for texts, 3 for large texts and
# icons
CONTRASTS = """() => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const paint = (colours) => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const bad = [];
  const check = (element, name, least) => {
    const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!name || !seen || element.closest('.unseen, noscript, script, [disabled]')) return;
    const grounds = [];
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) {
      const { backgroundColor, opacity: own } = getComputedStyle(at);
      grounds.unshift(backgroundColor);
      opacity *= Number(own);
    }
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const isLarge = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && fontWeight >= 700);
    const ground = paint(grounds), full = paint([...grounds, color]);
    const ink = full.map((c, i) => opacity * c + (1 - opacity) * ground[i]);
    const [one, other] = [light(ground), light(ink)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < (isLarge ? 3 : least)) bad.push([name.slice(0, 40), Math.round(100 * ratio) / 100]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) check(walker.currentNode.parentElement, walker.currentNode.data.trim(), 4.5);
  for (const icon of document.querySelectorAll('.icon')) {
    const button = icon.closest('button, a');
    check(icon, button ? 'icon of ' + (button.title || button.textContent) : '', 3);
  }
  return bad;
}"""

NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, textarea, select, summary, [tabindex="0"]')]
  .filter((each) => each.checkVisibility() && each.localName !== 'pre')
  .filter((each) => !(each.ariaLabel || each.textContent.trim() || each.labels?.length))
  .map((each) => each.outerHTML.slice(0, 200))"""

# the stops of Tab in order, from the top, and whether each shows an outline
STOPS = """() => {
  const { activeElement: at } = document;
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(at);
  const framed = at.id === 'question' ? getComputedStyle(at.form).boxShadow : boxShadow;
  const shown = (outlineStyle === 'solid' && parseFloat(outlineWidth) >= 2) || framed !== 'none';
  return [at.ariaLabel || at.labels?.[0]?.textContent || at.textContent.slice(0, 60), shown];
}"""
