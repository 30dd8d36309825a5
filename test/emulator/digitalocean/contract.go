package digitalocean

type contractTotals struct{}

func (c *Cloud) openContract() error            { return nil }
func (c *Cloud) checkExchange(*request, answer) {}
func (c *Cloud) reportContract(Testing)         {}
