// The site is docs/*.md as they are: titles, links and headings are those of the pages. `make site` builds it into bin/site.
import { readFileSync, readdirSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const root = fileURLToPath(new URL('../..', import.meta.url))
const icon = 'data:image/svg+xml,' + encodeURIComponent(readFileSync(join(root, 'docs/images/icon.svg'), 'utf8'))
const repository = 'https://github.com/assay-project/assay'

// The order of the pages, by what a reader wants to do. A page that is missing here is an error.
const groups = {
  Start: ['index', 'concepts', 'install', 'recipes', 'faq', 'ui', 'cli'],
  'Write rules': ['rules', 'rule-language', 'reference', 'features', 'library', 'composition', 'admission', 'editors'],
  'Place pods': ['scheduling', 'scale-from-zero', 'readiness', 'topology', 'image-compatibility', 'baselines'],
  Operate: ['values', 'security', 'upgrade', 'troubleshooting', 'observability', 'hardware-health', 'scale', 'robustness', 'gpu-operators'],
  'From NFD': ['migrating-from-nfd', 'nfd-differences'],
  Design: readdirSync(join(root, 'docs/design')).sort().map((file) => 'design/' + file.replace(/\.md$/, '')),
  Develop: ['style', 'release'],
}

const listed = new Set(Object.values(groups).flat())
for (const file of readdirSync(join(root, 'docs'))) {
  if (file.endsWith('.md') && !listed.has(file.replace(/\.md$/, ''))) {
    throw new Error(`docs/${file} is in no group of site/.vitepress/config.mjs`)
  }
}

// Returns the first heading of a page.
function title(page) {
  return readFileSync(join(root, 'docs', page + '.md'), 'utf8').match(/^# (.+)$/m)[1].replaceAll('`', '')
}

// Returns what GitHub makes of a heading, so that one link is right in both places.
function slugify(heading) {
  return heading.trim().toLowerCase().replaceAll(' ', '-').replace(/[^\p{L}\p{Nd}_-]/gu, '')
}

// Leads links out of docs/ to the repository, and drops comments, which are for tests. Vue must not read braces as templates.
function pages(md) {
  const render = md.renderer.render.bind(md.renderer)
  md.renderer.render = (...args) => render(...args).replaceAll('{{', '&#123;&#123;')
  md.core.ruler.push('assay', (state) => {
    const comment = (token) => token.type.startsWith('html_') && token.content.trimStart().startsWith('<!--')
    state.tokens = state.tokens.filter((token) => !comment(token))
    for (const token of state.tokens) {
      if (token.type === 'code_block') {
        Object.assign(token, { type: 'fence', info: 'sh' }) // indented blocks are commands
      }
      token.children = token.children?.filter((child) => !comment(child)) ?? null
      for (const link of token.children?.filter((child) => child.type === 'link_open') ?? []) {
        const target = normalize(join(dirname(state.env.relativePath), link.attrGet('href')))
        if (target.startsWith('../')) {
          link.attrSet('href', `${repository}/blob/main/${target.slice(3)}`)
        }
      }
    }
  })
}

export default defineConfig({
  title: 'Assay',
  description: 'Hardware discovery and node labeling for Kubernetes',
  lang: 'en-US',
  base: process.env.SITE_BASE ?? '/', // for a host that serves it below a path
  srcDir: '../docs',
  outDir: '../bin/site',
  metaChunk: true,
  head: [['link', { rel: 'icon', href: icon }]],
  markdown: { config: pages, anchor: { slugify }, toc: { slugify }, headers: { slugify } },
  vite: {
    publicDir: false,
    // The pages are outside of this directory, and so find no packages.
    resolve: { alias: [{ find: /^vue(\/server-renderer)?$/, replacement: join(root, 'site/node_modules/vue$1') }] },
    build: { chunkSizeWarningLimit: 4096 },
  },
  themeConfig: {
    logo: icon,
    outline: [2, 3],
    search: {
      provider: 'local',
      options: { detailedView: true, miniSearch: { searchOptions: { combineWith: 'AND', fuzzy: 0.1, prefix: true, boost: { title: 4, text: 2, titles: 1 } } } },
    },
    sidebar: Object.entries(groups).map(([text, list]) => ({
      text,
      collapsed: text === 'Design' || text === 'Develop',
      items: list.map((page) => ({ text: title(page), link: '/' + (page === 'index' ? '' : page) })),
    })),
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/docs/:path`, text: 'Edit this page' },
  },
})
