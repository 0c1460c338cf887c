// Package proxies has the commands about what proxies have: proxy, explain and source.
package proxies
