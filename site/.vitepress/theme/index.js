// The fonts of the system: the page loads no file for them.
export { default } from 'vitepress/theme-without-fonts'
