// Package numa tests NodeResourceTopologies with the scheduler plug-in that reads them.
package numa
