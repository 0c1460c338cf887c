package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// noticedSkew is the difference of two clocks that is reported. The server states whole
// seconds, and the answer takes some time.
const noticedSkew = 5 * time.Second

// CompareClocks adds to an error that the clocks of the server and this machine differ, if
// they do: then a certificate or token may be valid for one of them only. files verify the
// server; no certificate of this machine is sent.
func (e *Environment) CompareClocks(ctx context.Context, files ClientFiles, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	there, here, ok := e.clocks(ctx, files)
	if skew := there.Sub(here).Round(time.Second); ok && skew.Abs() >= noticedSkew {
		side := "ahead of"
		if skew < 0 {
			side = "behind"
		}
		return fmt.Errorf("%w: the clock of the server is %s %s that of this machine (there it is %s, and here %s): set the one that is wrong",
			err, skew.Abs(), side, there.UTC().Format(time.RFC3339), here.UTC().Format(time.RFC3339))
	}
	return err
}

// clockPatience bounds the time for a comparison of clocks.
const clockPatience = 5 * time.Second

// clocks returns the server's time and this machine's time at one moment, or false if the
// server does not tell its time.
func (e *Environment) clocks(ctx context.Context, files ClientFiles) (there, here time.Time, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	files.Cert, files.Key = "", ""
	httpClient, err := files.Client(e.Server)
	if err != nil {
		return there, here, false
	}
	if httpClient == nil {
		httpClient = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	defer httpClient.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(e.Server, "/")+"/healthz", nil)
	if err != nil {
		return there, here, false
	}
	response, err := httpClient.Do(r)
	if err != nil {
		return there, here, false
	}
	here = e.Now()
	_ = response.Body.Close()
	there, err = http.ParseTime(response.Header.Get("Date"))
	return there, here, err == nil
}
